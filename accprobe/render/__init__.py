"""Output for readers and other programs.

`subjects` makes a document tree of each result; `terminal`, `markdown` and `html` write it. `data` writes JSON and CSV,
`monitoring` JUnit XML and metrics for Prometheus, `progress` the progress of commands.
"""

"""Reports and comparisons for readers.

`content` has what is said, in plain words; `terminal`, `markdown` and `html` give it their form, with `pictures` for pages, and
`data` writes for other programs. No form knows of another.
"""

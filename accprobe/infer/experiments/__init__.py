"""The experiments: each finds one feature, or a few that show through one another.

An experiment sees a device only through a `Workbench`. It takes the draft inferred so far, and returns a changed draft and
findings.
"""

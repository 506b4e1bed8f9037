"""Reports and comparisons for readers.

What they say is in cells, patterns, sections and changes; pictures are drawn with svg; each other module is an output form, or
a part of one.
"""

"""Alternative models: models that differ from a given one in few fields, made from the records of the model's fields.

alternative.py  an alternative model with the values in which it differs, and functions that make one
single.py       alternatives in one field, of all sums of a role or of one sum, or in the order of the sums
several.py      alternatives in fields that can stand in for one another, or show through one another
bound_search.py alternatives in a row, each further away than the one before
nonstandard.py  alternatives in fields that no chip is known to use
variants.py     models that differ in many fields at once, as steps of the search
"""

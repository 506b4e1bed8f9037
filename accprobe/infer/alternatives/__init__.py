"""Alternative models: models that differ from a given one in few fields, made from the records of the model's fields.

alternative.py  an alternative model with the values in which it differs, and functions that make one
neighbours.py   alternatives in one field, in several that stand in for one another, or in steps further and further away
variants.py     models that differ in many fields at once, as steps of the search
"""

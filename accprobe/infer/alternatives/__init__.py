"""The neighbourhood of a model: what differs from it in little, as the records of the model's fields have it.

rival.py    a model beside another one, and how one is made
single.py   rivals in one field, of all sums of a role or of one alone, or in the order of the sums
several.py  rivals in fields that can stand in for one another, or show through one another
ladders.py  rivals in a row, each further away than the one before
beginnings.py  models of chains that begin with nothing
far.py      models that a search may have to step to, of many fields at once
"""

"""Whole matrix products: what arithmetic does any callable have? Nothing here knows whose callable it is."""

"""Whole matrix products: what arithmetic does any callable have? What infers it does not know whose it is."""

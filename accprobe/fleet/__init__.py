"""Tasks on the GPUs of a Ray cluster, one per GPU; Ray places them."""

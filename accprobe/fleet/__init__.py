"""Health checks of the GPUs of a Ray cluster, one task per GPU; Ray places them."""

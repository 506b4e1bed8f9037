"""The GPUs of a Ray cluster, each with a task of its own; Ray places them."""

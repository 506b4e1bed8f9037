"""Any binary: its kernels, their accumulators, and what a project demands of them."""

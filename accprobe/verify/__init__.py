"""A model against a device, or against recorded results, bit for bit."""

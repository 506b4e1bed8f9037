"""Inference of the arithmetic of an instruction; a device is used only through its protocol."""

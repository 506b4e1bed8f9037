"""How the arithmetic of an instruction is found; a device is seen only through its protocol."""

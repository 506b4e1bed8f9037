"""Records: findings, verifications and claims about instructions, products, functions and sweeps; plain data."""

"""What exists: number formats, architectures, and the matrix instructions that they have."""

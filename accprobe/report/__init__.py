"""What is told: the report of a device, its rows, words and columns."""

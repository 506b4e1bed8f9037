"""One experiment a feature."""

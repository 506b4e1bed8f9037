"""A whole device: every instruction characterised, challenged and verified."""

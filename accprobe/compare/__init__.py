"""Comparison of reports with one another and with requirements."""

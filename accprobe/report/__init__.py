"""What is told: the report of a device, its rows, words and columns."""

from accprobe.report.report import Report

__all__ = ["Report"]

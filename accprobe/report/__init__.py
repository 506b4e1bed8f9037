"""Reports: their files and names, the evidence of findings, fields for requirements and CSV, and texts that fit a table."""

from accprobe.report.report import Report

__all__ = ["Report"]

"""Reports: their files, evidence, names, flat columns and short words."""

from accprobe.report.report import Report

__all__ = ["Report"]

"""Reports: their rows, files, evidence, names and flat columns."""

from accprobe.report.report import Report

__all__ = ["Report"]

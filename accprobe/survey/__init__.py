"""A survey of a device: each selected instruction is inferred, tested against alternatives and verified."""

from accprobe.survey.run import survey

__all__ = ["survey"]

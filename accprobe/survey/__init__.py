"""A survey of a whole device: each instruction is inferred, tested against alternatives and verified."""

from accprobe.survey.run import survey

__all__ = ["survey"]

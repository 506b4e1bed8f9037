"""A whole device: every instruction characterised, challenged and verified."""

from accprobe.survey.run import survey

__all__ = ["survey"]

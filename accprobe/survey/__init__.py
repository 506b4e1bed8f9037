"""A survey of a whole device: every instruction inferred, falsified and verified."""

from accprobe.survey.run import survey

__all__ = ["survey"]

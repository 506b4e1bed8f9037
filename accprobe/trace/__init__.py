"""Traces of torch programs: which operation makes two runs differ, and why.

    import accprobe.trace

    with accprobe.trace.record("trace_a"):
        model(tokens)

`accprobe trace compare trace_a trace_b` compares two of them. Everything here is imported when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accprobe.trace.both import ProgramRun, run_both
    from accprobe.trace.folders import compare_folders, record
    from accprobe.trace.hashing import hash_of
    from accprobe.trace.recorder import pause_recording

_HOMES = {
    "ProgramRun": "both",
    "run_both": "both",
    "compare_folders": "folders",
    "record": "folders",
    "hash_of": "hashing",
    "pause_recording": "recorder",
}

__all__ = ["ProgramRun", "compare_folders", "hash_of", "pause_recording", "record", "run_both"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'accprobe.trace' has no attribute '{name}'")
    return getattr(import_module(f"accprobe.trace.{_HOMES[name]}"), name)

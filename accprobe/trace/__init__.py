"""Traces of torch programs: which operation makes two runs differ, and why.

    import accprobe.trace

    with accprobe.trace.record("trace_a"):
        model(tokens)

`accprobe trace compare trace_a trace_b` compares two of them.
"""

from accprobe.trace.both import ProgramRun, run_both
from accprobe.trace.folders import compare_folders, record
from accprobe.trace.hashing import hash_of
from accprobe.trace.recorder import pause_recording

__all__ = ["ProgramRun", "compare_folders", "hash_of", "pause_recording", "record", "run_both"]

"""How the process ends: with its own exit status, whatever the libraries that it has loaded do then."""

from __future__ import annotations

import ctypes
import sys


def leave_libraries_alone() -> None:
    """Where torch is loaded, exit handlers of its libraries are passed over, once Python is done with its own.

    As CUDA ends, CUPTI returns buffers to torch's profiler, which has freed them by then: many programs that asked it for the
    names of a library's kernels were aborted so when all was printed ("double free", torch 2.11), and the abort was their exit
    status. Nothing is done where the C library has no `on_exit`.
    """
    libc = ctypes.CDLL(None)
    if "torch" in sys.modules and hasattr(libc, "on_exit"):
        libc.on_exit(libc._exit, None)

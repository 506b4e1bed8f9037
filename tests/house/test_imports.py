"""Every module can be imported where only what the package depends on is installed."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import accprobe

OPTIONAL = ("cuda", "cupy", "cxxfilt", "llvmlite", "numba", "pynvml", "torch", "triton")

PROGRAM = """
import importlib, sys, traceback
optional, names = (words.split() for words in sys.argv[1:])
sys.modules |= dict.fromkeys(optional)
for name in names:
    try:
        importlib.import_module(name)
    except BaseException:
        print(name, traceback.format_exc())
"""

NOT_PLAIN = ("accprobe.__main__", "accprobe.evaluate.lanes", "accprobe.probes.triton_dot")
"""Modules that run something, or need an optional package."""


def test_no_module_needs_an_optional_package() -> None:
    """Imports run in one process: without circular imports any module can be the first."""
    found = pkgutil.walk_packages(accprobe.__path__, "accprobe.")
    names = [module.name for module in found if module.name not in NOT_PLAIN]
    assert len(names) > 80
    command = [sys.executable, "-c", PROGRAM, " ".join(OPTIONAL), " ".join(names)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""

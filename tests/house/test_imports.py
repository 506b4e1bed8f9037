"""Every module can be the first that is imported: no circle of imports, and nothing that only a GPU's machine has."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import accprobe

ALONE = """
import importlib, os, sys, traceback
import numpy, pydantic
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            print(name, traceback.format_exc(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""

NOT_PLAIN = ("accprobe.__main__", "accprobe.evaluate.compiled", "accprobe.probes.triton_dot")
"""Those that run something, or need an optional package."""


def test_every_module_can_be_the_first() -> None:
    found = pkgutil.walk_packages(accprobe.__path__, "accprobe.")
    names = [module.name for module in found if module.name not in NOT_PLAIN]
    assert len(names) > 80
    done = subprocess.run([sys.executable, "-c", ALONE, *names], capture_output=True, text=True, check=True)
    assert done.stdout == ""

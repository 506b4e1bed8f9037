"""The start of every Python of a simulated node: in Ray's workers, checks wait if a test wants them to.

Each check runs every unit once, however long its plan is. If HELD has a file with the name of the GPU, the check prints its
first results, writes its process id there, and repeats the results until it is ended (`SimulatedCluster.hold`).
"""

from __future__ import annotations

import os
import sys


def _hold_checks(folder: str) -> None:
    import re
    import time
    from collections.abc import Iterator
    from dataclasses import replace
    from pathlib import Path

    from accprobe.fleet import driver
    from accprobe.health.outcome import GpuOutcome
    from accprobe.health.plan import CheckPlan

    genuine = driver.check_gpu

    def check_gpu(device: str, plan: CheckPlan) -> Iterator[GpuOutcome]:
        import ray

        context = ray.get_runtime_context()
        (number,) = re.findall(r"GPU (\d+) of", context.get_task_name())
        held = Path(folder, f"{context.get_node_id()[:8]} {number}")
        for so_far in genuine(device, replace(plan, seconds=0.01)):
            yield so_far
            if not so_far.units or not held.exists():
                continue
            held.write_text(f"{os.getpid()}\n")
            while True:
                time.sleep(2)
                yield so_far

    driver.check_gpu = check_gpu


_scripts = [word for word in sys.orig_argv if word.endswith(".py")]
if "HELD" in os.environ and _scripts and _scripts[0].endswith("default_worker.py"):
    _hold_checks(os.environ["HELD"])

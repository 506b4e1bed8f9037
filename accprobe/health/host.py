"""All GPUs of a host at once, a process each, so that a crash or hang affects one GPU only."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from accprobe.build import driver
from accprobe.errors import DeviceError, UnknownName
from accprobe.health.check import check_gpu
from accprobe.health.outcome import GpuOutcome, OnOutcome
from accprobe.health.plan import HANG_SECONDS, CheckPlan
from accprobe.model.published import chip
from accprobe.survey.workers import end_with_parent, interrupts_held_back


def check_named(name: str) -> None:
    """Raises UnknownName for a name that is not a GPU, DeviceError where this host has no GPU of that number."""
    word, _, rest = name.partition(":")
    if word not in ("cuda", "sim", "faulty") or not rest:
        raise UnknownName(f"'{name}' is not a GPU; give all, or some of cuda:N, sim:NAME and faulty:NAME with commas between")
    if word != "cuda":
        chip(f"sim:{rest}")
        return
    count, reason = driver.gpus()
    if not rest.isdecimal() or int(rest) >= count:
        known = reason if count == 0 else f"this machine has cuda:0 to cuda:{count - 1}"
        raise DeviceError(f"there is no {name}: {known}")


def check_host(names: Sequence[str], plan: CheckPlan, on_outcome: OnOutcome) -> None:
    """Check the GPUs of those names at once. on_outcome: called with each change."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, tuple[int, BaseProcess]] = {}
    latest: dict[int, GpuOutcome] = {}
    try:
        with interrupts_held_back():
            for index, name in enumerate(names):
                receiving, sending = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(target=_check_in_worker, args=(name, plan, sending), daemon=True)
                process.start()
                sending.close()
                workers[receiving] = index, process
        until = time.monotonic() + plan.seconds + HANG_SECONDS
        listening = list(workers)
        while listening:
            ready = wait(listening, max(until - time.monotonic(), 0.0))
            for connection in [each for each in listening if each in ready]:
                index, process = workers[connection]
                try:
                    latest[index] = connection.recv()
                except EOFError:
                    listening.remove(connection)
                    process.join()
                    if index in latest and latest[index].ended:
                        continue
                    so_far = latest.get(index, GpuOutcome.unopened(names[index]))
                    latest[index] = so_far.stopped(f"its process died ({_how(process)})")
                on_outcome(index, latest[index])
            if not ready:
                for connection in listening:
                    index, _ = workers[connection]
                    so_far = latest.get(index, GpuOutcome.unopened(names[index]))
                    on_outcome(
                        index, so_far.stopped(f"it hangs: nothing came back for {HANG_SECONDS:.0f} s after its time was over")
                    )
                return
    finally:
        for _, process in workers.values():
            process.kill()


def _how(process: BaseProcess) -> str:
    code = process.exitcode or 0
    return f"signal {-code}" if code < 0 else f"exit status {code}"


def _check_in_worker(name: str, plan: CheckPlan, sending: Connection) -> None:
    end_with_parent()
    for so_far in check_gpu(name, plan):
        sending.send(so_far)

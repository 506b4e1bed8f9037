"""Collectives of `torch.distributed` as reductions: x [ranks, elements] is added along the ranks, each of them a process.

The command sends each process its row, and every process reduces it in one process group. D has a row for each rank that
returns the whole sum (`all_reduce`), or one row in parts, one for each rank (`reduce_scatter`).
"""

from __future__ import annotations

import os
import signal
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np

from accprobe.build import driver
from accprobe.callables.adapter import CallableAdapter
from accprobe.callables.arrays import open_arrays, torch_type
from accprobe.callables.opening import Opened, ProductRequest
from accprobe.callables.operands import first_operands
from accprobe.callables.options import Options
from accprobe.callables.reductions import factor_exponent
from accprobe.callables.spec import Spec
from accprobe.errors import AccprobeError
from accprobe.isa.formats import FORMATS

# Fresh process groups, one after the other, that reduce `first_operands`; the last one is kept for the measurement.
PROCESS_GROUPS = 3
# Seconds until a collective that does not return is given up.
COLLECTIVE_PATIENCE = 120
_START = b"start"
NCCL_RANKS = 2
"""Ranks with which nccl was measured: two NVIDIA H200 of one host."""


class Job(NamedTuple):
    """A collective. type: torch's name of the element type. store: the file by which the ranks meet."""

    collective: str
    backend: str
    operation: str
    ranks: int
    type: str
    store: str


class ProcessGroup:
    """Processes of one process group, which reduce the rows that they are sent."""

    def __init__(self, job: Job) -> None:
        context = get_context("forkserver")  # it imports torch once, and no process inherits a CUDA context
        context.set_forkserver_preload(["torch.distributed", "accprobe.callables.collectives"])
        self._folder = tempfile.TemporaryDirectory(prefix="accprobe-ranks-")
        job = job._replace(store=os.path.join(self._folder.name, "store"))
        self._ranks: list[Connection] = []
        processes: list[BaseProcess] = []
        self.close = weakref.finalize(self, _close, self._ranks, processes, self._folder)
        try:
            _start_forkserver()
            for rank in range(job.ranks):
                mine, theirs = context.Pipe()
                self._ranks.append(mine)
                process = context.Process(target=_serve, args=(job, rank, theirs), daemon=True)
                process.start()
                processes.append(process)
                theirs.close()
            for connection in self._ranks:
                with suppress(OSError):  # as in `reduced`
                    connection.send_bytes(_START)
        except BaseException:
            self.close()
            raise

    def reduced(self, rows: Sequence[bytes]) -> list[bytes]:
        """Return what each rank returns for its row. Raises AccprobeError."""
        for rank, row in zip(self._ranks, rows, strict=True):
            with suppress(OSError):  # a process that ended: its error is received below
                rank.send_bytes(row)
        return [self._received(number, rank) for number, rank in enumerate(self._ranks)]

    def _received(self, number: int, rank: Connection) -> bytes:
        if not rank.poll(COLLECTIVE_PATIENCE):
            raise AccprobeError(f"rank {number} did not return within {COLLECTIVE_PATIENCE} s")
        try:
            found: bytes | str = rank.recv()
        except (EOFError, OSError):
            raise AccprobeError(f"the process of rank {number} ended") from None
        if isinstance(found, str):
            raise AccprobeError(f"rank {number} raises {found}")
        return found


def _start_forkserver() -> None:
    """Start the server with SIGINT blocked, as its processes then have it: Ctrl-C reaches them while they import torch, too."""
    resource_tracker.ensure_running()  # it would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _close(ranks: Sequence[Connection], processes: Sequence[BaseProcess], folder: tempfile.TemporaryDirectory[str]) -> None:
    """Close the connections and kill the processes: one that waits for other ranks would not end."""
    for rank in ranks:
        rank.close()
    for process in processes:
        if process.is_alive():
            process.kill()
    folder.cleanup()


def _serve(job: Job, rank: int, connection: Connection) -> None:
    """Reduce each received row until the connection closes. Gloo aborts when a process ends normally, so `os._exit` ends it.

    It joins the process group when every rank has started: a rank that is alone would wait for the others.
    """
    try:
        connection.recv_bytes()
        reduce = _open_rank(job, rank)
        while True:
            connection.send(reduce(connection.recv_bytes()))
    except (EOFError, OSError):
        pass
    except BaseException as e:
        with suppress(OSError):
            connection.send(f"{type(e).__name__}: {' '.join(str(e).split())[:300]}")
    os._exit(0)


def _open_rank(job: Job, rank: int) -> Any:
    """Join the process group. Return the function of the bytes of a row to the bytes of this rank's result."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    device = "cpu" if job.backend == "gloo" else f"cuda:{rank}"
    if device != "cpu":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        job.backend, f"file://{job.store}", timedelta(seconds=COLLECTIVE_PATIENCE), world_size=job.ranks, rank=rank
    )
    type_, operation = getattr(torch, job.type), getattr(dist.ReduceOp, job.operation.upper())
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def reduce(row: bytes) -> bytes:
        x = torch.frombuffer(bytearray(row), dtype=type_).to(device)
        if job.collective.endswith("all_reduce"):
            dist.all_reduce(x, op=operation)
        else:
            parts, x = x, x.new_empty(len(x) // job.ranks)
            scatter(x, parts, op=operation)
        found: bytes = x.cpu().view(torch.uint8).numpy().tobytes()
        return found

    return reduce


class Collective(CallableAdapter):
    """A collective of x [ranks, elements], with a process for each rank."""

    def __init__(self, name: str, spec: Spec, options: Options, device: str | None) -> None:
        backend, operation = str(options["backend"]), str(options["op"])
        if backend == "gloo" and (device or "cpu") != "cpu":
            raise AccprobeError(f"gloo reduces on the CPU here: leave --device {device} out, or give --backend nccl")
        library = open_arrays("torch", "cpu" if backend == "gloo" else device or "cuda:0")
        if backend == "nccl" and (count := driver.gpus()[0]) < spec.k:
            raise AccprobeError(f"nccl needs a GPU for each rank: there are {count} GPUs for {spec.k} ranks")
        if name.endswith("reduce_scatter") and spec.n % spec.k:
            raise AccprobeError(f"{spec.n} elements are not divisible by {spec.k} ranks: give another --shape")
        type_ = str(torch_type(library, spec.a)).removeprefix("torch.")
        self._job = Job(name, backend, operation, spec.k, type_, "")
        super().__init__(spec, self._reduce, library, name)
        self._group = ProcessGroup(self._job)

    def _reduce(self, a: Any, b: Any) -> Any:
        import torch

        words = b.cpu().view(getattr(torch, f"int{self.spec.b.storage_bits}")).numpy()
        found = b"".join(self._group.reduced([row.tobytes() for row in words]))
        return torch.frombuffer(bytearray(found), dtype=b.dtype).view(self.spec.m, self.spec.n)

    def renew(self) -> None:
        """Start the next calls in a fresh process group."""
        self._group.close()
        self._group = ProcessGroup(self._job)


def open_collective(name: str, request: ProductRequest, options: Options, device: str | None) -> Opened:
    """Open a collective: request.shape is (ranks, elements, ranks).

    `first_operands` are reduced in several process groups. The results are compared like results of first calls.
    """
    fmt, (m, n, k) = request.a or FORMATS["f32"], request.shape
    spec = Spec(1 if name.endswith("reduce_scatter") else m, n, k, fmt, fmt, fmt, a_exponent=0)
    collective = Collective(name, spec, options, device)
    never_run = options["backend"] == "nccl" and spec.k > NCCL_RANKS
    remarks = (f"nccl of more than {NCCL_RANKS} ranks has never run with accprobe",) if never_run else ()
    if options["op"] == "avg":
        collective.spec = replace(
            spec, a_exponent=factor_exponent(collective, "ranks: give a number of --ranks that is a power of two")
        )
        remarks = (*remarks, f"avg divides {_divided(collective)}")
        collective.before.clear()
    for _ in range(PROCESS_GROUPS - 1):
        collective.before.append(collective.product(*first_operands(collective.spec)))
        collective.renew()
    return Opened(collective, {"dim": "first", **options}, remarks=remarks)


def _divided(collective: Collective) -> str:
    """Return whether each term or the sum is divided: the largest numbers overflow only if they are added first."""
    spec = collective.spec
    d = collective.product(first_operands(spec)[0], np.full((spec.n, spec.k), spec.b.largest, spec.b.dtype))
    return "the sum, which can overflow first" if np.isinf(spec.out.values(d)).any() else "each term before it is added"

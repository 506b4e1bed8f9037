"""Compile CUDA C++ to cubins with NVRTC, in this process or in several."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from accprobe.build import cache, install
from accprobe.build.cache import Cubin
from accprobe.build.probes import find_probe, source
from accprobe.errors import AccprobeError, ToolMissing
from accprobe.isa.instructions import Instruction

_OPTIONS = {"std": "c++17"}


def compile(inst: Instruction, target: str) -> Cubin:
    """Return the cubin of the probe of `inst` for a compile target such as "sm_90a", from the cache or the compiler.

    Raises ToolMissing without a compiler, and AccprobeError if there is no probe or the target lacks the instruction.
    """
    return compile_source(source(inst), target, inst.name)


def compile_all(insts: Iterable[Instruction], target: str) -> dict[Instruction, Cubin]:
    """Compile many instructions as `compile` does; those that cannot be compiled are left out.

    NVRTC compiles one kernel at a time per process, so other processes compile the missing kernels into the cache.
    """
    sources = {inst: source(inst) for inst in insts if find_probe(inst)}
    fill_cache([(code, inst.name) for inst, code in sorted(sources.items(), key=lambda item: -item[0].n)], target)
    cubins = {}
    for inst, code in sources.items():
        with suppress(AccprobeError):
            cubins[inst] = compile_source(code, target, inst.name)
    return cubins


def fill_cache(sources: Iterable[tuple[str, str]], target: str) -> None:
    """Compile those (source, name) pairs that the cache lacks in other processes, in their order, if there are more than four.

    Errors are ignored here: compiling that cubin later raises them again.
    """
    missing = {code: name for code, name in sources if not cache.load(_entry(code, target))}
    each = [(code, target, name) for code, name in missing.items()]
    processes = min(os.cpu_count() or 1, math.ceil(len(each) / 4))
    if processes > 1:
        _run_workers([each[i::processes] for i in range(processes)])


def _run_workers(shares: list[list[tuple[str, str, str]]]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", f"from {__name__} import _worker; _worker()"]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        for _ in shares
    ]
    try:
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(lambda worker, share: worker.communicate(json.dumps(share).encode()), workers, shares))
    finally:
        for worker in workers:
            worker.kill()


def _worker() -> None:
    for code, target, name in json.load(sys.stdin):
        with suppress(AccprobeError):
            compile_source(code, target, name)


def compile_source(code: str, target: str, name: str) -> Cubin:
    """Return the cubin of any CUDA C++ source; `name` is for messages. Caches and raises as `compile`."""
    entry = _entry(code, target)
    if cached := cache.load(entry):
        return cached
    cubin = cache.store(_nvrtc(code, target, name))
    cache.enter(entry, cubin, name, target)
    return cubin


def _entry(code: str, target: str) -> Path:
    return cache.entry(code, target, compiler_version(), repr(_OPTIONS))


@functools.cache
def compiler_version() -> str:
    """Return NVRTC's version, such as "13.0.88" ("13.0" if it comes with a toolkit). Raises ToolMissing."""
    try:
        return importlib.metadata.version("nvidia-cuda-nvrtc")
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as e:
        raise ToolMissing(f"the CUDA compiler NVRTC is not installed: {install.GPU_STACK}") from e
    return f"{major}.{minor}"


def _nvrtc(code: str, target: str, name: str) -> bytes:
    try:
        from cuda.core import Program, ProgramOptions
    except ImportError as e:
        raise ToolMissing(f"cuda.core is not installed: {install.GPU_STACK}") from e
    try:
        program = Program(code, "c++", ProgramOptions(arch=target, **_OPTIONS))
        return bytes(program.compile("cubin").code)
    except Exception as e:
        if "libnvrtc" in str(e):
            raise ToolMissing(f"the CUDA compiler NVRTC is not installed: {install.GPU_STACK}") from e
        found = re.search(r"error\s*: *(.+)", str(e))
        reason = found[1] if found else " ".join(str(e).split())
        raise AccprobeError(f"{name} does not compile for {target}: {reason.strip()}") from e

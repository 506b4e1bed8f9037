"""The sweep's kernel, compiled by Triton for each configuration, which needs no GPU, and run on a GPU with torch.

Compilation gives the cubin and its opcodes, or the reason why there is none; each launch runs that cubin. Triton caches
compiled kernels (TRITON_CACHE_DIR). It compiles in threads, as its own `AsyncCompileMode` does: its passes and ptxas run
without the interpreter's lock.
"""

from __future__ import annotations

import errno
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from accprobe.build import cache, install
from accprobe.build.lowerings import Lowering
from accprobe.callables.arrays import TorchArrays
from accprobe.errors import AccprobeError, DeviceError, ToolFailed, ToolMissing
from accprobe.isa import architectures
from accprobe.sass import lowering
from accprobe.sweep.configurations import SIDE, Configuration, Dtype
from accprobe.sweep.masks import CUTS, Measured, Operands, Sample, mask

PARSES = 5
"""Attempts to parse a kernel. CPython 3.11 has one depth counter of the parser for all threads. An interrupted thread sometimes
fails ("AST constructor recursion depth mismatch"), although the source is correct.
"""

CANNOT_WRITE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT)
"""Errors of the cache folder, which do not concern the configuration."""

_ALIGNED = 16
"""Pointers, n and k are multiples of this number; Triton calls that divisibility."""


@dataclass(frozen=True)
class Compiled:
    """A configuration, ready to run. kernel: Triton's CompiledKernel, or None and the reason."""

    configuration: Configuration
    reason: str = ""
    kernel: Any = None
    num_stages: int | None = None
    shared_bytes: int | None = None
    lowering: Lowering | None = None
    seconds: float = 0.0


def triton_version() -> str:
    """Return Triton's version. Raises ToolMissing without Triton."""
    return str(_triton().__version__)


def compile_configurations(configurations: Iterable[Configuration], target: str) -> Iterator[Compiled]:
    """Return each configuration compiled for a target such as "sm_90a", in order; several are compiled at once.

    Raises ToolMissing, and AccprobeError if Triton's cache cannot be written.
    """
    _triton()
    from accprobe.probes import triton_dot

    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        yield from pool.map(lambda each: _compile(triton_dot.masked_gemm, each, target), configurations)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _triton() -> Any:
    """Return Triton with all modules that are used of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import triton
            import triton.backends.compiler
            import triton.compiler
            import triton.language
    except Exception as e:  # also whatever a Triton raises that does not fit this Python or this machine
        said = " ".join(str(e).split()) or type(e).__name__
        raise ToolMissing(f"Triton, for the sweep's kernel, cannot be imported ({said}): {install.TRITON}") from e
    return triton


def _constants(config: Configuration) -> dict[str, Any]:
    return {
        "BLOCK_M": SIDE,
        "BLOCK_N": SIDE,
        "BLOCK_K": config.block_k,
        "PRECISION": config.dtype.precision,
        "PROMOTE_EVERY": config.promote_every,
    }


def _compile(kernel: Any, config: Configuration, target: str) -> Compiled:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    shared_bytes = architectures.get(target).shared_bytes
    if config.block_bytes > shared_bytes:
        return Compiled(config, f"one block of A and B is {config.block_bytes:,} bytes, shared memory has {shared_bytes:,}")
    started = time.perf_counter()
    constants = _constants(config)
    operand = f"*{config.dtype.triton}"
    signature = {"a": operand, "b": operand, "c": "*fp32", "n": "i32", "k": "i32", "mask": "i32"}
    aligned = {(i,): [["tt.divisibility", _ALIGNED]] for i, name in enumerate(signature) if name != "mask"}
    source = ASTSource(kernel, signature | dict.fromkeys(constants, "constexpr"), constants, aligned)
    stages = config.stages(shared_bytes)
    major, minor = architectures.get(target).compute_capability
    options = {"num_warps": config.num_warps, "num_stages": stages, "enable_fp_fusion": True}
    try:
        compiled = _parsed_again(lambda: compile(source, target=GPUTarget("cuda", 10 * major + minor, 32), options=options))
    except Exception as e:  # whatever Triton or ptxas raises: it is a finding about this configuration
        if isinstance(e, OSError) and e.errno in CANNOT_WRITE:
            place = e.filename or "its cache"
            raise AccprobeError(f"Triton cannot write {place} ({e.strerror}): set TRITON_CACHE_DIR") from None
        return Compiled(config, f"Triton {triton_version()} rejects it: {_said(e)}")
    found = compiled.metadata.shared
    reason = f"it needs {found:,} bytes of shared memory, {target} has {shared_bytes:,}" if found > shared_bytes else ""
    return Compiled(
        config,
        reason,
        None if reason else compiled,
        stages,
        found,
        _lowering(compiled.asm["cubin"]),
        round(time.perf_counter() - started, 3),
    )


def _parsed_again(compile: Callable[[], Any]) -> Any:
    """Return a compilation that is repeated up to PARSES times after a SystemError, which CPython's parser may raise for
    correct source.
    """
    for _ in range(PARSES - 1):
        with suppress(SystemError):
            return compile()
    return compile()


def _said(error: Exception) -> str:
    """Return the sentence in an error of Triton, which quotes source code around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else type(error).__name__
    inner = re.fullmatch(r"\w+\((['\"])(.*)\1\)", text)
    return inner[2] if inner else text


def _lowering(cubin: bytes) -> Lowering | None:
    """Return the opcodes of the bytes that are launched; None without a disassembler that reads them."""
    try:
        return lowering.lowering(cache.store(cubin))
    except (ToolMissing, ToolFailed):
        return None


TIMED_LAUNCHES, TIMED_ROUNDS = 10, 3
"""The fastest of a few rounds of consecutive launches gives the speed."""


class GpuBench:
    """GPU number `index`. Raises ToolMissing without a torch that is built for CUDA, DeviceError without that GPU."""

    def __init__(self, index: int) -> None:
        self._arrays = TorchArrays(f"cuda:{index}")
        self._uploaded: tuple[Operands, tuple[Any, Any, Any]] | None = None
        import torch

        self._torch: Any = torch
        with self._guard("cannot be opened"):
            torch.cuda.get_device_properties(index)

    def measure(self, compiled: Compiled, operands: Operands, sample: Sample) -> Measured:
        """Launch without a mask and with each, count the changed elements on the GPU, and time it. Raises DeviceError."""
        torch, config = self._torch, compiled.configuration
        with self._guard(f"failed on {config.dtype.name} at block-K {config.block_k} with {config.num_warps} warps"):
            a, b, exact = self._upload(config.dtype, operands)
            rows, columns = (torch.from_numpy(each).to(self._arrays.device) for each in sample)
            whole = self._launched(compiled, a, b, mask(0)).view(torch.int32)
            counts, errors, sampled = [], [], []
            for cut in CUTS:
                each = self._launched(compiled, a, b, mask(cut))
                errors.append(torch.linalg.vector_norm(each - exact))
                patterns = each.view(torch.int32)
                counts.append((patterns != whole).sum())
                sampled.append(patterns[rows[:, None], columns[None, :]])
            return Measured(
                changed=torch.stack(counts).tolist(),
                errors=(torch.stack(errors) / torch.linalg.vector_norm(exact)).tolist(),
                sampled=torch.stack(sampled).cpu().numpy().view(np.uint32),
                tflops=self._tflops(compiled, a, b),
                registers=compiled.kernel.n_regs,
                spills=compiled.kernel.n_spills,
            )

    def _upload(self, dtype: Dtype, operands: Operands) -> tuple[Any, Any, Any]:
        """Return A and B on the GPU, and their product in f64, exact for the drawn 8-bit operands."""
        if self._uploaded is None or self._uploaded[0] is not operands:
            a, b = (self._arrays.operand(role, each, dtype.format) for role, each in zip("ab", operands, strict=True))
            self._uploaded = operands, (a, b, a.double() @ b.double().T)
        return self._uploaded[1]

    def _launched(self, compiled: Compiled, a: Any, b: Any, mask: int) -> Any:
        c = self._torch.full((len(a), len(b)), -1, dtype=self._torch.int32, device=a.device).view(self._torch.float32)
        self._launch(compiled, a, b, c, mask)
        return c

    def _launch(self, compiled: Compiled, a: Any, b: Any, c: Any, mask: int) -> None:
        grid = (len(a) // SIDE, len(b) // SIDE, 1)
        compiled.kernel[grid](a, b, c, len(b), a.shape[1], mask, *_constants(compiled.configuration).values())

    def _tflops(self, compiled: Compiled, a: Any, b: Any) -> float:
        torch = self._torch
        c = self._launched(compiled, a, b, mask(0))
        fastest: float = np.inf
        for _ in range(TIMED_ROUNDS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(TIMED_LAUNCHES):
                self._launch(compiled, a, b, c, mask(0))
            end.record()
            end.synchronize()
            fastest = min(fastest, float(begin.elapsed_time(end)) / TIMED_LAUNCHES / 1e3)
        return float(2e-12 * len(a) * len(b) * a.shape[1] / fastest)

    @contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        """Make this the current GPU; turn errors of CUDA and Triton into DeviceError."""
        try:
            with self._torch.cuda.device(self._arrays.device):
                yield
        except AccprobeError:
            raise
        except Exception as e:  # torch and Triton raise RuntimeError and their own
            raise DeviceError(f"{self._arrays.device} {what}: {' '.join(str(e).split())}") from e

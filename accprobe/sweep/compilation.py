"""Configurations compiled by Triton: the cubin and its opcodes, or the reason why there is none. No GPU is needed.

Triton caches compiled kernels (TRITON_CACHE_DIR). It compiles in threads, as its own `AsyncCompileMode` does: its passes and
ptxas run without the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from accprobe.build import cache, install
from accprobe.errors import AccprobeError, ToolFailed, ToolMissing
from accprobe.isa import architectures
from accprobe.sass import lowering
from accprobe.sass.lowering import Lowering
from accprobe.sweep.configurations import SIDE, Configuration

PARSES = 5
"""Attempts to parse a kernel. CPython 3.11 has one depth counter of the parser for all threads, and sometimes fails an
interrupted thread ("AST constructor recursion depth mismatch"), although the source is correct.
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

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Return the kernel's constants, in order, as a launch takes them."""
        return tuple(_constants(self.configuration).values())


def triton_version() -> str:
    """Return Triton's version. Raises ToolMissing without Triton."""
    return str(_triton().__version__)


def compile_configurations(configurations: Iterable[Configuration], target: str) -> Iterator[Compiled]:
    """Return each configuration compiled for a target such as "sm_90a", in order; several are compiled at once.

    Raises ToolMissing, and AccprobeError if Triton's cache cannot be written.
    """
    kernel = _kernel()
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        yield from pool.map(lambda each: _compile(kernel, each, target), configurations)
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
    except ModuleNotFoundError as e:
        if e.name == "triton":
            raise ToolMissing(f"Triton is not installed, and the sweep's kernel is written in it: {install.TRITON}") from e
        raise _broken(e) from e
    except Exception as e:  # whatever a Triton raises that does not fit this Python or this machine
        raise _broken(e) from e
    return triton


def _broken(error: Exception) -> ToolMissing:
    said = " ".join(str(error).split()) or type(error).__name__
    return ToolMissing(f"Triton is installed, but cannot be imported ({said}): {install.TRITON_AGAIN}")


def _kernel() -> Any:
    _triton()
    from accprobe.probes import triton_dot

    return triton_dot.masked_gemm


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
    except ImportError as e:
        raise _broken(e) from e
    except OSError as e:
        if e.errno not in CANNOT_WRITE:
            return Compiled(config, f"Triton {triton_version()} rejects it: {_said(e)}")
        raise AccprobeError(f"Triton cannot write {e.filename or 'its cache'} ({e.strerror}): set TRITON_CACHE_DIR") from None
    except Exception as e:  # whatever Triton or ptxas raises: it is a finding about this configuration
        return Compiled(config, f"Triton {triton_version()} rejects it: {_said(e)}")
    found = compiled.metadata.shared
    reason = f"it needs {found:,} bytes of shared memory, {target} has {shared_bytes:,}" if found > shared_bytes else ""
    return Compiled(
        config,
        reason,
        None if reason else compiled,
        stages,
        found,
        _lowering(compiled.asm["cubin"], target),
        round(time.perf_counter() - started, 3),
    )


def _parsed_again(compile: Callable[[], Any]) -> Any:
    """Return a compilation that is repeated up to PARSES times after a SystemError, which CPython's parser may raise for
    correct source.
    """
    for _ in range(PARSES - 1):
        with contextlib.suppress(SystemError):
            return compile()
    return compile()


def _said(error: Exception) -> str:
    """Return the sentence in an error of Triton, which quotes source code around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else type(error).__name__
    inner = re.fullmatch(r"\w+\((['\"])(.*)\1\)", text)
    return inner[2] if inner else text


def _lowering(cubin: bytes, target: str) -> Lowering | None:
    """Return the opcodes of the bytes that are launched; None without a disassembler that reads them."""
    try:
        return lowering.lowering(cache.store(cubin, target))
    except (ToolMissing, ToolFailed):
        return None

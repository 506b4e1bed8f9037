"""Kernels: the probe of an instruction, as source and as a compiled cubin, cached on disk.

The device code is `accprobe.probes`; this module writes the parameters above it (register counts, storage types and the inline
assembly of the instruction). A cubin is found in the cache by its source, its compiler and its target; it is stored under its
own sha256, so several processes may write at once and a damaged file is noticed and built again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from accprobe.errors import AccprobeError, ToolMissing
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction

INSTALL = "pip install 'accprobe[cuda13]'"
KERNEL_NAME = "probe"
BLOCK_THREADS = 128
_OPTIONS: dict[str, Any] = {"std": "c++17"}


@dataclass(frozen=True)
class Cubin:
    """One compiled probe. milliseconds: what compiling took just now, None where the cubin came from the cache."""

    path: Path
    sha256: str
    target: str
    milliseconds: float | None


def why_no_probe(inst: Instruction) -> str | None:
    """Why there is no kernel for `inst`, as a short clause, or None where there is one."""
    if inst.family == "tcgen05" or inst.sparse or inst.scale is not None or inst.bit_op is not None:
        return "no probe yet"
    if any(f.bits + f.ignored_low_bits < f.storage_bits for f in (inst.a, inst.b)):
        return "no probe yet"
    row_bits = inst.k * inst.a.storage_bits
    if inst.family == "wgmma":
        return None if (inst.m, row_bits) == (64, 256) and inst.n % 8 == 0 else "no probe yet"
    words = row_bits // _word_bits(inst)
    return None if inst.m in (8, 16) and inst.n == 8 and words % 4 == 0 and not _quad_pairs(inst) else "no probe yet"


def _quad_pairs(inst: Instruction) -> bool:
    """Volta's m8n8k4 of f16 has a layout of its own: four tiles a warp."""
    return (inst.m, inst.n, inst.k, inst.a.name) == (8, 8, 4, "f16")


def problems(inst: Instruction) -> int:
    """Independent dot products in one tile."""
    return math.gcd(inst.m, inst.n)


def placements(inst: Instruction) -> int:
    """How many ways there are to lay the problems out: over all of them a problem is reported from every row and column."""
    return max(inst.m, inst.n, 2 * problems(inst))


def shifts(inst: Instruction, placement: int) -> tuple[int, int]:
    """(row_shift, column_shift) of a placement: problem p is reported from row p + row_shift, column p + column_shift.

    Columns move by triangular numbers, which visit every residue of a power of two: so rows also move against columns.
    """
    return placement % inst.m, placement * (placement + 1) // 2 % inst.n


class Part(Enum):
    """What a kernel computes.

    SHARE: independent dot products, each once (`probe`). EVERY_SM: all of them once on each SM (`probe` too). PRODUCT: a matrix
    product, each element one dot product of the instruction (`product`).
    """

    SHARE = "share"
    EVERY_SM = "every SM"
    PRODUCT = "product"


def source(inst: Instruction, part: Part = Part.SHARE) -> str:
    """The complete CUDA C++ of the probe of `inst`. Raises AccprobeError where there is none."""
    if reason := why_no_probe(inst):
        raise AccprobeError(f"{inst.name} cannot be compiled: {reason}")
    family = ("product_" if part is Part.PRODUCT else "") + ("wgmma.cu" if inst.family == "wgmma" else "mma_sync.cu")
    switch = "#define ON_EVERY_SM\n" if part is Part.EVERY_SM else ""
    return _parameters(inst) + switch + device_code(family)


@cache
def device_code(name: str) -> str:
    """A file of the device code, and in place what it includes."""
    text = files("accprobe.probes").joinpath(name).read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"\n', lambda found: device_code(found[1]), text, flags=re.MULTILINE)


def _word_bits(inst: Instruction) -> int:
    return 64 if inst.a.storage_bits == 64 else 32


def _registers(inst: Instruction) -> dict[str, int]:
    """Registers that a lane holds of each operand; A of a wgmma has none where it is read from shared memory."""
    word = _word_bits(inst)
    lanes = 128 if inst.family == "wgmma" else 32

    def count(elements: int, fmt: Format) -> int:
        return elements * min(fmt.storage_bits, word) // (lanes * word)

    from_shared = inst.family == "wgmma"
    return {
        "a": 0 if from_shared and not inst.a_registers else count(inst.m * inst.k, inst.a),
        "b": 0 if from_shared else count(inst.n * inst.k, inst.b),
        "c": count(inst.m * inst.n, inst.c),
        "d": count(inst.m * inst.n, inst.d),
    }


def _parameters(inst: Instruction) -> str:
    storage = {8: "unsigned char", 16: "unsigned short", 32: "unsigned int", 64: "unsigned long long"}
    word = _word_bits(inst)
    registers = _registers(inst)
    values = {"M": inst.m, "N": inst.n, "PROBLEMS": problems(inst), "K_WORDS": inst.k * inst.a.storage_bits // word}
    values |= {f"{operand.upper()}_REGISTERS": count for operand, count in registers.items()}
    values |= {"C_PACKED": word // inst.c.storage_bits, "D_PACKED": word // inst.d.storage_bits}
    assembly = _wgmma(inst, registers) if inst.family == "wgmma" else _mma_sync(inst, registers)
    return "".join(
        [
            f"// {inst.name}\n",
            f"using Word = {storage[word]};\n",
            f"using CElement = {storage[inst.c.storage_bits]};\n",
            f"using DElement = {storage[inst.d.storage_bits]};\n",
            *(f"#define {name} {value}\n" for name, value in values.items()),
            f"#define MULTIPLY({assembly}\n",
        ]
    )


def _mma_sync(inst: Instruction, registers: dict[str, int]) -> str:
    """PTX ISA, "Multiply-and-Accumulate Instruction: mma". Registers are bit-size typed, which PTX accepts for every type."""
    letter = "l" if _word_bits(inst) == 64 else "r"
    saturate = ".satfinite" if inst.satfinite else ""
    shape = f"m{inst.m}n{inst.n}k{inst.k}"
    kind = f".kind::{inst.kind}" if inst.kind else ""
    opcode = f"mma.sync.aligned.{shape}.row.col{kind}{saturate}.{inst.d}.{inst.a}.{inst.b}.{inst.c}"
    number = iter(range(1000))
    groups = ", ".join(_braces(number, registers[operand]) for operand in "dabc")
    outputs = _bind("d", registers["d"], f"={letter}")
    inputs = ", ".join(_bind(operand, registers[operand], letter) for operand in "abc")
    return f'd, a, b, c) asm volatile("{opcode} {groups};" : {outputs} : {inputs})'


def _wgmma(inst: Instruction, registers: dict[str, int]) -> str:
    """PTX ISA, "wgmma.mma_async": D is also the addend (scale-d is true); operands are neither negated nor transposed."""
    saturate = ".satfinite" if inst.satfinite else ""
    shape = f"m{inst.m}n{inst.n}k{inst.k}"
    opcode = f"wgmma.mma_async.sync.aligned.{shape}{saturate}.{inst.d}.{inst.a}.{inst.b}"
    number = iter(range(1000))
    d = _braces(number, registers["d"])
    a = _braces(number, registers["a"]) if inst.a_registers else f"%{next(number)}"
    b = f"%{next(number)}"
    modifiers = "" if inst.is_integer else ", 1, 1"
    if inst.a.storage_bits == 16:
        modifiers += ", 0" if inst.a_registers else ", 0, 0"
    lines = [
        "{ .reg .pred accumulate; setp.eq.u32 accumulate, 0, 0;",
        "wgmma.fence.sync.aligned;",
        f"{opcode} {d}, {a}, {b}, accumulate{modifiers};",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0; }",
    ]
    inputs = (_bind("a", registers["a"], "r") if inst.a_registers else '"l"(a)') + ', "l"(b)'
    return f'd, a, b) asm volatile("{" ".join(lines)}" : {_bind("d", registers["d"], "+r")} : {inputs} : "memory")'


def _braces(number: Iterator[int], count: int) -> str:
    return "{" + ", ".join(f"%{next(number)}" for _ in range(count)) + "}"


def _bind(name: str, count: int, constraint: str) -> str:
    return ", ".join(f'"{constraint}"({name}[{i}])' for i in range(count))


def compile(inst: Instruction, target: str) -> Cubin:
    """The cubin of the probe of `inst` for a compile target such as "sm_90a", from the cache or the compiler.

    Raises ToolMissing without a compiler, and AccprobeError where the target lacks the instruction.
    """
    return compile_source(source(inst), target, inst.name)


def compile_all(insts: Iterable[Instruction], target: str, workers: int | None = None) -> dict[Instruction, Cubin]:
    """`compile` for many instructions at once; one that cannot be compiled is left out.

    NVRTC compiles one kernel at a time in a process, so what the cache lacks is compiled by other processes, into the cache.
    """
    sources = {inst: source(inst) for inst in insts if not why_no_probe(inst)}
    fill_cache([(code, inst.name) for inst, code in sorted(sources.items(), key=lambda item: -item[0].n)], target, workers)
    cubins = {}
    for inst, code in sources.items():
        with suppress(AccprobeError):
            cubins[inst] = compile_source(code, target, inst.name)
    return cubins


def fill_cache(sources: Iterable[tuple[str, str]], target: str, workers: int | None = None) -> None:
    """Compiles what the cache lacks of (source, name), the slowest first, by other processes, where it is enough for two.

    Whatever goes wrong goes wrong again, and is reported, where the cubin is asked for.
    """
    missing = {code: name for code, name in sources if not _load(_entry(code, target), target)}
    each = [(code, target, name) for code, name in missing.items()]
    processes = min(workers or os.cpu_count() or 1, math.ceil(len(each) / 4))
    if processes > 1:
        _run_workers([each[i::processes] for i in range(processes)])


def _run_workers(shares: list[list[tuple[str, str, str]]]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", "from accprobe.build.kernels import _worker; _worker()"]
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
    """The cubin of any CUDA C++ source; `name` is for messages. Caches and raises as `compile`."""
    entry = _entry(code, target)
    if cached := _load(entry, target):
        return cached
    started = time.perf_counter()
    content = _nvrtc(code, target, name)
    milliseconds = (time.perf_counter() - started) * 1e3
    sha256 = hashlib.sha256(content).hexdigest()
    path = entry.with_name(f"{sha256}.cubin")
    write_by_rename(path, content)
    write_by_rename(entry, json.dumps({"name": name, "target": target, "sha256": sha256}).encode())
    return Cubin(path, sha256, target, milliseconds)


def _entry(code: str, target: str) -> Path:
    key = "\0".join([code, target, compiler_version(), repr(_OPTIONS)])
    return cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _load(entry: Path, target: str) -> Cubin | None:
    try:
        sha256 = json.loads(entry.read_bytes())["sha256"]
        path = entry.with_name(f"{sha256}.cubin")
        intact = hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Cubin(path, sha256, target, None) if intact else None


def cache_folder() -> Path:
    """Where cubins are kept: ACCPROBE_CACHE_DIR, else the user's cache folder. Raises AccprobeError if it cannot be made."""
    chosen = os.environ.get("ACCPROBE_CACHE_DIR")
    if not chosen:
        import platformdirs

        chosen = platformdirs.user_cache_dir("accprobe")
    folder = Path(chosen)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise AccprobeError(f"the cache folder {folder} cannot be made ({e.strerror}): set ACCPROBE_CACHE_DIR") from None
    return folder


def write_by_rename(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees all of it or none."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@cache
def compiler_version() -> str:
    """NVRTC's version, e.g. "13.0.88" ("13.0" where it comes with a toolkit). Raises ToolMissing where there is none."""
    try:
        return importlib.metadata.version("nvidia-cuda-nvrtc")
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as e:
        raise ToolMissing(f"the CUDA compiler NVRTC is not installed: {INSTALL}") from e
    return f"{major}.{minor}"


def _nvrtc(code: str, target: str, name: str) -> bytes:
    try:
        try:
            from cuda.core import Program, ProgramOptions
        except ImportError:  # cuda.core before 1.0
            from cuda.core.experimental import Program, ProgramOptions
    except ImportError as e:
        raise ToolMissing(f"cuda.core is not installed: {INSTALL}") from e
    try:
        program = Program(code, "c++", ProgramOptions(arch=target, **_OPTIONS))
        return bytes(program.compile("cubin").code)
    except Exception as e:
        if "libnvrtc" in str(e):
            raise ToolMissing(f"the CUDA compiler NVRTC is not installed: {INSTALL}") from e
        found = re.search(r"error\s*: *(.+)", str(e))
        reason = found[1] if found else " ".join(str(e).split())
        raise AccprobeError(f"{name} does not compile for {target}: {reason.strip()}") from e

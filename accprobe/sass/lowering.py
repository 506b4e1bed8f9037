"""The SASS of a PTX instruction.

It is exact because probes contain no other arithmetic. They move, compare and count bit patterns with opcodes that
`accprobe.sass.reading` does not list as arithmetic. So every arithmetic opcode in a probe belongs to its instruction.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from accprobe.build import cache
from accprobe.build.cache import Cubin
from accprobe.build.lowerings import Lowering, matrix_opcodes
from accprobe.errors import ToolFailed, ToolMissing
from accprobe.sass.reading import functions

_SCHEMA = 2
"""Format of the file beside a cubin."""


def lowering(cubin: Cubin) -> Lowering:
    """Return the lowering of a probe's instruction, cached beside the cubin. Raises as `functions`."""
    kept = cubin.path.with_suffix(".sass.json")
    sequence = _read(kept)
    if sequence is None:
        (function,) = functions(cubin.path, targets=False)
        sequence = function.arithmetic
        cache.write_entry(kept, json.dumps({"schema": _SCHEMA, "sequence": sequence}).encode())
    return Lowering(matrix_opcodes(sequence), sequence, "nvdisasm", cubin.sha256)


def prepare(cubins: Iterable[Cubin]) -> None:
    """Disassemble many probes at once, so that `lowering` finds them. Does nothing without a disassembler."""
    with ThreadPoolExecutor(os.cpu_count()) as pool, suppress(ToolMissing, ToolFailed):
        list(pool.map(lowering, cubins))


def _read(path: Path) -> tuple[tuple[str, int], ...] | None:
    try:
        kept = json.loads(cache.read_entry(path))
        if kept["schema"] != _SCHEMA:
            return None
        return tuple((str(opcode), int(count)) for opcode, count in kept["sequence"])
    except (OSError, ValueError, KeyError, TypeError):
        return None

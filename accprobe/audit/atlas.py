"""The SASS that each PTX instruction becomes on each architecture, compiled from accprobe's probes without a GPU.

`python -m accprobe.audit.atlas` prints it as reports/lowering.json has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from accprobe.build import compiler, probes, toolchain
from accprobe.isa import architectures
from accprobe.isa.instructions import Instruction, catalog
from accprobe.sass import lowering

ATLAS_SCHEMA = 1
KIND = "lowering"

OpcodeCounts = tuple[tuple[str, int], ...]
"""(opcode, count) of all arithmetic opcodes of an instruction."""


@dataclass(frozen=True)
class Atlas:
    """lowerings: instruction -> its SASS -> the compile targets with this SASS. targets: those that were compiled; missing:
    those that this compiler does not support. compiler, disassembler: versions, as the tools print them.
    """

    compiler: str
    disassembler: str
    targets: tuple[str, ...]
    lowerings: dict[str, dict[OpcodeCounts, tuple[str, ...]]]
    missing: tuple[str, ...] = ()


def compile_atlas(targets: Sequence[str] = (), jobs: int | None = None) -> Atlas:
    """Compile the probes of these architectures; "sm_90" includes the instructions of "sm_90a"; no target means all.

    Raises ToolMissing without a compiler or disassembler, UnknownName, and AccprobeError if the only target does not compile.
    """
    chosen = tuple(dict.fromkeys(architectures.get(t).target for t in targets)) or tuple(
        a.target for a in architectures.ARCHITECTURES
    )
    drawn: dict[str, dict[OpcodeCounts, tuple[str, ...]]] = {}
    compiled = []
    for target in chosen:
        probed = [inst for inst in catalog(target) if probes.why_no_probe(inst) is None]
        became = dict(_lowerings(probed, target, jobs))
        if became:
            compiled.append(target)
        for name, sequence in became.items():
            on = drawn.setdefault(name, {})
            on[sequence] = (*on.get(sequence, ()), target)
        if probed and not became and len(chosen) == 1:
            compiler.compile(probed[0], target)
    disassembler = toolchain.tool_version("nvdisasm") or "unknown"
    missing = tuple(target for target in chosen if target not in compiled)
    return Atlas(compiler.compiler_version(), disassembler, tuple(compiled), drawn, missing)


def _lowerings(insts: Iterable[Instruction], target: str, jobs: int | None) -> Iterator[tuple[str, OpcodeCounts]]:
    cubins = compiler.compile_all(insts, target, jobs)
    lowering.prepare(cubins.values())
    for inst, cubin in cubins.items():
        yield inst.name, lowering.lowering(cubin).sequence


def dumps(atlas: Atlas) -> str:
    """Return the atlas as JSON with one instruction per line."""
    head = {
        "schema": ATLAS_SCHEMA,
        "kind": KIND,
        "compiler": f"NVRTC {atlas.compiler}",
        "disassembler": f"nvdisasm {atlas.disassembler}",
        "architectures": atlas.targets,
    }
    lines = [
        f"  {json.dumps(name)}: {json.dumps([{'on': on, 'lowering': sequence} for sequence, on in became.items()])}"
        for name, became in atlas.lowerings.items()
    ]
    body = ",\n".join(lines)
    return f'{json.dumps(head)[:-1]},\n "lowerings": {{\n{body}\n }}}}\n'


if __name__ == "__main__":
    print(dumps(compile_atlas()), end="")

"""The SASS that each PTX instruction becomes on each architecture, compiled from accprobe's probes without a GPU.

`python -m accprobe.audit.atlas` prints it as reports/lowering.json has it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from accprobe.build import compiler, probes, toolchain
from accprobe.isa import architectures
from accprobe.isa.instructions import catalog
from accprobe.sass import lowering

OpcodeCounts = tuple[tuple[str, int], ...]
"""(opcode, count) of all arithmetic opcodes of an instruction."""


def compile_atlas(targets: Sequence[str] = (), jobs: int | None = None) -> dict[str, Any]:
    """Compile the probes of these compile targets, of all by default; those that the compiler lacks are left out.

    Raises ToolMissing without a compiler or disassembler.
    """
    drawn: dict[str, dict[OpcodeCounts, list[str]]] = {}
    compiled = []
    for target in targets or [known.target for known in architectures.ARCHITECTURES]:
        probed = [inst for inst in catalog(target) if probes.why_no_probe(inst) is None]
        cubins = compiler.compile_all(probed, target, jobs)
        lowering.prepare(cubins.values())
        for inst, cubin in cubins.items():
            drawn.setdefault(inst.name, {}).setdefault(lowering.lowering(cubin).sequence, []).append(target)
        compiled += [target] if cubins else []
    return {
        "schema": 1,
        "kind": "lowering",
        "compiler": f"NVRTC {compiler.compiler_version()}",
        "disassembler": f"nvdisasm {toolchain.tool_version('nvdisasm') or 'unknown'}",
        "architectures": compiled,
        "lowerings": {
            name: [{"on": on, "lowering": sequence} for sequence, on in became.items()] for name, became in drawn.items()
        },
    }


def dumps(atlas: dict[str, Any]) -> str:
    """Return the atlas as JSON with one instruction per line."""
    head = {key: value for key, value in atlas.items() if key != "lowerings"}
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(became)}" for name, became in atlas["lowerings"].items())
    return f'{json.dumps(head)[:-1]},\n "lowerings": {{\n{body}\n }}}}\n'


if __name__ == "__main__":
    print(dumps(compile_atlas()), end="")

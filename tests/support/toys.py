"""A toy of each kind that docs/extending.md tells how to add: what it changes in which file."""

from __future__ import annotations

NEW = ""
"""What is replaced in a file that is new: nothing."""

Edits = dict[str, list[tuple[str, str]]]
"""By file: texts that are there once, and what stands in their place."""

INSTRUCTION: Edits = {
    "accprobe/isa/tables.py": [
        (
            '    yield Table(MMA_SYNC, "m16n8k16", _types(both, ("f16",)), sm80)\n',
            '    yield Table(MMA_SYNC, "m16n8k16", _types(both, ("f16",)), sm80)\n'
            '    yield Table(MMA_SYNC, "m16n8k32", _types(("f32",), ("bf16",)), sm90)\n',
        )
    ],
}

FAMILY: Edits = {
    "accprobe/isa/families.py": [
        (
            "FAMILIES = (MMA_SYNC, WGMMA, TCGEN05, AVX512, AMX, NEON, NEON_MMLA)\n",
            """TOY = Family(
    name="toy",
    sparse_name="toy.sp",
    since=(9, 0),
    threads=64,
    in_registers="abcd",
    adds_to_d=False,
    converts=False,
    promoted_by_triton=False,
    opcode="TOY{}MMA",
    units="H",
    typed_opcode=True,
    probe=Probe("toy.cu", 4, lambda inst: inst.m == 16, ptx.toy),
)
FAMILIES = (MMA_SYNC, WGMMA, TCGEN05, AVX512, AMX, NEON, NEON_MMLA, TOY)
""",
        )
    ],
    "accprobe/isa/ptx.py": [
        (
            "def _shape(inst",
            '''def toy(inst: Instruction, registers: Mapping[str, int]) -> str:
    """One product."""
    return f'd, a, b, c) asm("toy.{_shape(inst)};" : {_bind("d", registers["d"], "=r")} : {_bind("a", registers["a"], "r")})'


def _shape(inst''',
        )
    ],
    "accprobe/isa/tables.py": [
        ("MMA_SYNC, TCGEN05, WGMMA, Family", "MMA_SYNC, TCGEN05, TOY, WGMMA, Family"),
        (
            "def every_table()",
            '''def _toy() -> Iterator[Table]:
    """Of no document."""
    yield Table(TOY, "m16n8k16", _types(("f32",), ("f16",)), frozenset({"sm_90a"}))


def every_table()''',
        ),
        ("*_tcgen05(), *_of_processors())", "*_tcgen05(), *_of_processors(), *_toy())"),
    ],
    "probes/toy.cu": [(NEW, '#include "tile.cuh"\n// The toy\'s dot products.\n')],
    "probes/product_toy.cu": [(NEW, '#include "product.cuh"\n// The toy\'s matrix product.\n')],
}

FIELD: Edits = {
    "accprobe/model/tree.py": [
        ('Overflow = Literal["infinity"', 'ToySign = Literal["kept", "positive"]\nOverflow = Literal["infinity"'),
        (
            '    nan_payload: NanPayload = "dropped"\n',
            '    nan_payload: NanPayload = "dropped"\n    toy_sign: ToySign = "kept"\n',
        ),
        ("    nan: bit pattern of a NaN", "    toy_sign: of a sum that is too large.\n    nan: bit pattern of a NaN"),
    ],
    "accprobe/model/fields.py": [
        ("    Tininess,\n    UnderflowSign,", "    Tininess,\n    ToySign,\n    UnderflowSign,"),
        (
            '    "carries": Feature(',
            """    "toy_sign": Field(
        "toy sign",
        "sign of a sum that is too large",
        "Infinities can have another sign.",
        of_adds=True,
        values=Words(get_args(ToySign)),
        place="overflow",
    ),
    "carries": Feature(""",
        ),
    ],
    "accprobe/evaluate/rounding.py": [
        (
            "    step = fmt.mantissa_bits - arithmetic.result_bits\n    most",
            '    if arithmetic.toy_sign == "positive":\n        negative = negative & (patterns < fmt.infinity)\n'
            "    step = fmt.mantissa_bits - arithmetic.result_bits\n    most",
        )
    ],
    "probes/evaluator.cuh": [
        (
            "            pattern = Rules::overflow == ",
            "            negative &= Rules::toy_sign == ToySign::kept, pattern = Rules::overflow == ",
        )
    ],
    "probes/evaluator_reals.cuh": [
        (
            "pattern >= (u32)Result::INF) pattern",
            "pattern >= (u32)Result::INF) negative &= Rules::toy_sign == ToySign::kept, pattern",
        ),
        (
            "pattern = (high & 1u << 31) | 0x7f800000",
            "pattern = (Rules::toy_sign == ToySign::kept ? high & 1u << 31 : 0) | 0x7f800000",
        ),
    ],
    "accprobe/infer/experiments/toy.py": [
        (
            NEW,
            '''"""The sign of a sum that is too large."""

from typing import get_args

from accprobe.infer.draft import Draft, roles
from accprobe.infer.workbench import eliminate, fitting
from accprobe.infer.findings import Findings
from accprobe.infer.workbench import Dyadic, Workbench
from accprobe.model.features import Name
from accprobe.model.tree import ToySign


def toy(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    findings: Findings = {}
    top = bench.inst.d.max_exponent
    rows = fitting(bench, [{0: Dyadic(sign, top), bench.addend: Dyadic(sign, top)} for sign in (1, -1)])
    for role in roles(draft):
        candidates = {word: draft.change(role, toy_sign=word).model() for word in get_args(ToySign)}
        finding = eliminate(bench, candidates, rows, "no sum is too large")
        draft = draft.change(role, toy_sign=finding.value)
        findings[str(Name("toy_sign", role))] = finding
    return draft, findings
''',
        )
    ],
    "accprobe/infer/experiments/__init__.py": [
        (
            "from accprobe.infer.findings import Findings\n",
            "from accprobe.infer.experiments.toy import toy\nfrom accprobe.infer.findings import Findings\n",
        ),
        ("nan, overflow, detection,", "nan, toy, overflow, detection,"),
    ],
    "accprobe/model/published.py": [
        ('        underflow_sign="positive",\n', '        underflow_sign="positive",\n        toy_sign="positive",\n')
    ],
    "accprobe/report/report.schema.json": [],
}

DEVICE: Edits = {
    "accprobe/devices/toy.py": [
        (
            NEW,
            '''"""A device that answers every question with the addend."""

from collections.abc import Sequence

from accprobe.devices.protocol import DeviceKind
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.operands.request import Request
from accprobe.sass.lowering import Lowering


class ToyDevice:
    kind: DeviceKind = "toy"
    architecture = "sm_90a"
    pure = True

    def __init__(self, name: str) -> None:
        self.name = f"toy {name}"

    def describe(self) -> dict[str, object]:
        return {"sm_count": 1}

    def environment(self) -> dict[str, str]:
        return {}

    def instructions(self) -> Sequence[Instruction]:
        return [parse("mma.sync.m8n8k16.s32.s8.s8.s32")]

    def why_not(self, inst: Instruction) -> str | None:
        return None

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        return request.c.copy()

    def placements(self, inst: Instruction) -> int:
        return 1

    def lowering(self, inst: Instruction) -> Lowering | None:
        return None
''',
        )
    ],
    "accprobe/devices/__init__.py": [
        (
            "SCHEMES = {\n",
            """def _toy(name: str) -> Device:
    from accprobe.devices.toy import ToyDevice

    return ToyDevice(name)


SCHEMES = {
    "toy": Scheme("NAME", _toy, lambda: [("box", "what it says")]),
""",
        )
    ],
    "accprobe/devices/protocol.py": [
        (
            'DeviceKind = Literal["cuda", "simulated", "replay", "cpu"]',
            'DeviceKind = Literal["cuda", "simulated", "replay", "cpu", "toy"]',
        )
    ],
    "accprobe/report/report.schema.json": [],
    "accprobe/cli/run.py": [("|replay:FILE", "|replay:FILE|toy:NAME")],
}

FORMAT: Edits = {
    "accprobe/render/toy.py": [
        (
            NEW,
            '''"""Reports as names and statuses."""

from accprobe.report.report import Report


def names_and_statuses(report: Report) -> str:
    return "".join(f"{row.name}: {row.status}\\n" for row in report.measured)
''',
        )
    ],
    "accprobe/cli/show.py": [
        ('"jsonl", "csv"]', '"jsonl", "csv", "toy"]'),
        (
            "    from accprobe.render.data import comma_separated",
            """    if form == "toy":
        from accprobe.render.toy import names_and_statuses

        return names_and_statuses(report)
    from accprobe.render.data import comma_separated""",
        ),
    ],
    "pyproject.toml": [("terminal | markdown | html | data", "terminal | markdown | html | data | toy")],
}

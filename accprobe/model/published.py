"""Published models of the matrix units, per chip, each with its source.

A chip is a table of units. A unit describes one fused sum of a group of operand formats; a lowering describes how a PTX
instruction is built from the unit's sums. Instructions without a published model are missing here.

Some values are not published but measured on an H200 (report h200). `underflow_sign` and NaN results of f64 sums are assumed
for every chip, `min_exponent` of f16 results for Blackwell too.

Others recorded results on real chips that these models reproduce bit for bit: `explained.json` beside the recorded reports
holds the counts, written by tests/support/hardware_vectors.py. The results are in the repository of their
authors: F. A. Khattak and M. Mikaitis, https://github.com/north-numerical-computing/MATLAB-tensor-core (BSD 2-clause).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from accprobe.build.checkout import data_folder
from accprobe.build.lowerings import Lowering, compiled
from accprobe.errors import UnknownName, nearest
from accprobe.isa.formats import FORMATS, Format
from accprobe.isa.instructions import Instruction, Kind, catalog
from accprobe.isa.opcodes import kind_of
from accprobe.model.record import Value
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, Product, Rounding, chain

KHATTAK = "Khattak & Mikaitis, Accurate Models of NVIDIA Tensor Cores (TACO; MATLAB-tensor-core)"
MMA_SIM = "Xie et al., MMA-Sim (arXiv 2511.10909)"
FASI = "Fasi et al., Numerical Behavior of the NVIDIA Tensor Cores (PeerJ CS 2021)"
DEEPSEEK = "DeepSeek-V3 (arXiv 2412.19437), SageAttention2 (arXiv 2411.10958)"
SF_TENSOR = "tcgen05-model (github.com/sf-tensor/tcgen05 6f19f22)"
PTX = "PTX ISA, mma and wgmma: .satfinite clamps, otherwise the accumulator wraps"

IEEE = "IEEE 754: multiply-adds and adds of f32, each rounded once; the lowering as ptxas 13 emits it"

MEASURED = "underflow_sign, min_exponent of f16 results and NaNs of f64 measured on an H200 (report h200)"


@dataclass(frozen=True)
class Unit:
    """A matrix unit for some operand formats. products: of each fused sum. min_exponent: the smallest alignment exponent.

    f32_bits: result bits of f32 results. scaled_products: see `FloatArithmetic`.
    """

    products: int
    alignment_bits: int
    min_exponent: int | None
    source: str
    f32_bits: int = 23
    f16_min_exponent: int | None = None
    """Smallest alignment exponent for f16 results, if it differs."""
    scaled_products: int | None = None


class Chip(NamedTuple):
    """Published facts about one chip.

    units, group_units: operand format -> unit, of instructions that one warp, or several warps, execute.
    scaled_units: kind -> unit, of operands with block scales.
    converts_fp8: families that convert (`Family.converts`) lower fp8 operands to a chain of two sums of the f16 unit and a
    separate add of C. The first sum has the k with k % 4 = 0 or 1, the second has the others.
    has_steps: m8n8k4 of f16 runs on the matrix unit, as on Volta; otherwise ordinary multiply-adds compute it.
    """

    title: str
    architecture: str
    units: dict[str, Unit]
    group_units: dict[str, Unit]
    converts_fp8: bool = False
    has_steps: bool = False
    scaled_units: Mapping[Kind, Unit] = MappingProxyType({})


# Values, by feature, that no public result of the chip distinguishes.
Left = Mapping[str, tuple[Value, ...]]


class KnownModel(NamedTuple):
    """A published model, its opcodes and its source; `candidates`: the remaining values of open fields."""

    model: DotModel
    lowering: Lowering
    source: str
    candidates: Left = MappingProxyType({})


_F16_VOLTA = Unit(4, 23, None, f"{KHATTAK}; {FASI}")
_F16_AMPERE = Unit(8, 24, -132, f"{KHATTAK}; {MMA_SIM}")
_TF32_AMPERE = Unit(4, 24, -132, f"{KHATTAK}; {MMA_SIM}")
_FP8_ADA = Unit(16, 13, -132, f"{KHATTAK}; {MMA_SIM}; {DEEPSEEK}", f32_bits=13)
_F16_HOPPER = Unit(16, 25, -133, f"{KHATTAK}; {MMA_SIM}", f16_min_exponent=-21)
_TF32_HOPPER = Unit(8, 25, -133, f"{KHATTAK}; {MMA_SIM}")
_FP8_HOPPER = Unit(32, 13, -133, f"{KHATTAK}; {MMA_SIM}; {DEEPSEEK}", f32_bits=13)
_FP8_BLACKWELL = Unit(32, 25, -133, f"{KHATTAK}; {MMA_SIM}; {SF_TENSOR}", f16_min_exponent=-21)
_FP4_BLACKWELL = Unit(64, 35, -139, f"{MMA_SIM}; {SF_TENSOR}", scaled_products=16)

_AMPERE = {"f16": _F16_AMPERE, "bf16": _F16_AMPERE, "tf32": _TF32_AMPERE}
_HOPPER = {"f16": _F16_HOPPER, "bf16": _F16_HOPPER, "tf32": _TF32_HOPPER}
_FP8 = ("e4m3", "e5m2")
_FP8_6_4 = dict.fromkeys((*_FP8, "e3m2", "e2m3", "e2m1"), _FP8_BLACKWELL)
_SCALED: dict[Kind, Unit] = {"mxf8f6f4": _FP8_BLACKWELL, "mxf4": _FP4_BLACKWELL, "mxf4nvf4": _FP4_BLACKWELL}

CHIPS: dict[str, Chip] = {
    "v100": Chip("V100", "sm_70", {"f16": _F16_VOLTA}, {}, has_steps=True),
    "a100": Chip("A100", "sm_80", _AMPERE, {}),
    "a2": Chip("A2", "sm_86", _AMPERE, {}),
    "l40s": Chip("L40S", "sm_89", {**_AMPERE, **dict.fromkeys(_FP8, _FP8_ADA)}, {}),
    "h100": Chip(
        "H100",
        "sm_90a",
        _HOPPER,
        {**_HOPPER, **dict.fromkeys(_FP8, _FP8_HOPPER)},
        converts_fp8=True,
    ),
    "b200": Chip(
        "B200",
        "sm_100a",
        _HOPPER,
        {**_HOPPER, **_FP8_6_4},
        converts_fp8=True,
        scaled_units=_SCALED,
    ),
    "rtx5090": Chip("RTX 5090", "sm_120a", {**_HOPPER, **_FP8_6_4}, {}, scaled_units=_SCALED),
}
ALIASES = {"ada": "l40s", "h200": "h100"}
ALIAS_TITLES = {"h200": "H200"}

EXPLAINED = "explained"  # Name of the file beside the recorded reports, without its suffix.
NO_MODEL = "no published model"  # Why a device of published models cannot run an instruction.
SIM = "sim:"  # Prefix of a chip's name where a device or a report can be named too.


def names() -> tuple[str, ...]:
    """Return every name that `chip` and `sim:NAME` accept."""
    return (*CHIPS, *ALIASES)


def chip(name: str) -> Chip:
    """Return the chip of that name, "h100" or "sim:h100". Raises UnknownName with the known names in the same form."""
    bare = name.removeprefix(SIM)
    key = ALIASES.get(bare.lower(), bare.lower())
    if key not in CHIPS:
        known = nearest(bare.lower(), names(), prefix=SIM if name.startswith(SIM) else "")
        raise UnknownName(f"no published model of '{name}'; {known}")
    return CHIPS[key]


def title(name: str) -> str:
    """Return the name of a chip, by the name that the user gave: an H200 has the models of the H100. Raises UnknownName."""
    return ALIAS_TITLES.get(name.removeprefix(SIM).lower(), chip(name).title)


@cache
def known_models(name: str) -> dict[Instruction, KnownModel]:
    """Return every published model of a chip, by instruction. Raises UnknownName."""
    known = chip(name)
    models = ((inst, _model(known, inst)) for inst in catalog(known.architecture))
    return {inst: model for inst, model in models if model is not None}


def _model(known: Chip, inst: Instruction) -> KnownModel | None:
    if inst.sparse:
        return None
    if inst.is_integer:
        return _integer(known, inst)
    if inst.quad_pairs and not known.has_steps:
        return _multiply_adds(known, inst)
    if inst.a.name == "f64":
        arithmetic = FloatArithmetic(
            FORMATS["f64"], 52, "RNE", None, zero_sign="ieee", nan=_nan(FORMATS["f64"]), nan_payload="b c a"
        )
        root = chain([[k] for k in range(inst.k)], arithmetic)
        return KnownModel(DotModel(root), _lowering(known, inst), f"{KHATTAK}; {FASI}; {MEASURED}")
    if inst.family.converts and known.converts_fp8 and {inst.a.name, inst.b.name} <= set(_FP8):
        return _converted(known, inst)
    unit = _unit(known, inst)
    if unit is None or inst.b.name not in known.units | known.group_units or inst.k > 16 * unit.products:
        return None
    groups = [range(inst.k)[i : i + unit.products] for i in range(0, inst.k, unit.products)]
    root = chain(groups, _arithmetic(unit, inst.d))
    return KnownModel(DotModel(root), _lowering(known, inst), f"{unit.source}; {MEASURED}", _left(known, inst))


def _unit(known: Chip, inst: Instruction) -> Unit | None:
    if inst.scale is not None and inst.kind is not None:
        return known.scaled_units.get(inst.kind)
    return (known.units if inst.family.warps == 1 else known.group_units).get(inst.a.name)


def _arithmetic(unit: Unit, d: Format) -> FloatArithmetic:
    kept: tuple[int, Rounding] = (d.mantissa_bits, "RNE") if d.name == "f16" else (unit.f32_bits, "RZ")
    floor = unit.min_exponent
    if d.name == "f16" and unit.f16_min_exponent is not None:
        floor = unit.f16_min_exponent
    return FloatArithmetic(
        d,
        *kept,
        unit.alignment_bits,
        min_exponent=floor,
        underflow_sign="positive",
        nan=_nan(d),
        scaled_products=unit.scaled_products,
    )


def _nan(d: Format) -> int:
    """Khattak & Mikaitis: every NaN comes out as 0x7FFFFFFF (f16: 0x7FFF); f64: 0xFFF8…0 for an invalid operation, measured."""
    return {"f16": 0x7FFF, "f64": 0xFFF8 << 48}.get(d.name, 0x7FFFFFFF)


def _converted(known: Chip, inst: Instruction) -> KnownModel:
    unit = known.units["f16"]
    arithmetic = _arithmetic(unit, inst.d)
    if {inst.a.name, inst.b.name} != {"e5m2"}:  # a subnormal e4m3 is a normal f16, a subnormal e5m2 stays one
        arithmetic = replace(arithmetic, product_exponent="normalised operands")
    add = FloatArithmetic(inst.d, inst.d.mantissa_bits, "RNE", None, zero_sign="ieee", nan=_nan(inst.d))
    halves = [[k for k in range(inst.k) if (k % 4 < 2) == first] for first in (True, False)]
    source = f"{unit.source}; {MEASURED}; the lowering as ptxas 13 emits it"
    return KnownModel(DotModel(chain(halves, arithmetic, "separate add", add)), _lowering(known, inst), source)


def _integer(known: Chip, inst: Instruction) -> KnownModel:
    root = chain([range(inst.k)], IntegerArithmetic(inst.d, "saturate" if inst.satfinite else "wrap"))
    return KnownModel(DotModel(root), _lowering(known, inst), PTX)


def _multiply_adds(known: Chip, inst: Instruction) -> KnownModel:
    """Return m8n8k4 on f32 units: for f32 products in turn and C last; for f16 pairs of products and C, then a conversion."""
    f32 = FORMATS["f32"]
    arithmetic = FloatArithmetic(f32, f32.mantissa_bits, "RNE", None, nan=_nan(f32))
    if inst.d.name == "f32":
        root = chain([[0, 1], [2], [3]], arithmetic, "separate add")
    else:
        arithmetic = replace(arithmetic, zero_sign="ieee")
        pairs = [FusedSum((Product(k), Product(k + 1)), arithmetic) for k in range(0, inst.k, 2)]
        total = FusedSum((FusedSum((pairs[0], Addend()), arithmetic), pairs[1]), arithmetic)
        converted = FloatArithmetic(inst.d, inst.d.mantissa_bits, "RNE", None, zero_sign="ieee", nan=_nan(inst.d))
        root = FusedSum((total,), converted)
    return KnownModel(DotModel(root), _lowering(known, inst), IEEE)


def _left(known: Chip, inst: Instruction) -> Left:
    """Return the values that no result which others recorded on a B200 excludes; "any" if they recorded none."""
    if inst.kind is None or not known.scaled_units:
        return {}
    words = _WORDS_LEAVE if known is CHIPS["b200"] and inst.d.name == "f32" else {}
    operands = f"{inst.a}.{inst.b}" + (f".{inst.scale}.{inst.k}" if inst.scale else "")
    left: dict[str, tuple[Value, ...]] = {"alignment_bits": words.get(operands, ("any",))}
    if inst.scale is not None and _SCALED[inst.kind].scaled_products is not None:
        left["scaled_products"] = (4, 8, 16) if operands in words else ("any",)
    return left


# Alignment bits of f32 results that reproduce all results recorded of a B200's tcgen05 (SF_TENSOR).
_WORDS_LEAVE: dict[str, tuple[Value, ...]] = {
    "tf32.tf32": (21, 22, "at least 25"),
    "f16.f16": ("at least 24",),
    "e4m3.e4m3": ("at least 24",),
    "e5m2.e5m2": (23, 24, 25),
    "e2m3.e2m3": ("at least 23",),
    "e3m2.e3m2": tuple(range(23, 31)),
    "e2m1.e2m1": ("at least 23",),
    "e2m1.e2m1.ue4m3.64": ("at least 21",),
}


def _lowering(known: Chip, inst: Instruction) -> Lowering:
    """Return what ptxas 13 makes of an instruction (report lowering); for older chips, the opcode of its unit."""
    opcode, *_ = kind_of(inst)
    return compiled(known.architecture).get(inst.name) or Lowering((opcode,), ((opcode, 1),), "known model")


@dataclass(frozen=True)
class Explained:
    """Count of results of a real chip that a model reproduces without a mismatch, and their source."""

    words: int
    chip: str
    source: str


def words_explained(name: str) -> dict[str, tuple[Explained, ...]]:
    """Return by instruction name the recorded results that the published models of a chip reproduce. Raises UnknownName."""
    known, found = chip(name), dict[str, tuple[Explained, ...]]()
    for one in _sets():
        if chip(one["gpu"]) is known:
            explained = Explained(one["dots"], one["gpu"], one["source"])
            found[one["name"]] = (*found.get(one["name"], ()), explained)
    return found


def explained_text(every: Iterable[Explained]) -> str:
    """Return "10,000 results recorded on a B200 (SOURCE)"; counts of one chip are added, "" if there are none."""
    counts: dict[tuple[str, str], int] = {}
    for one in every:
        counts[one.chip, one.source] = counts.get((one.chip, one.source), 0) + one.words
    texts = [f"{words:,} {{}}on {article(name)} {name} ({source})" for (name, source), words in counts.items()]
    return " and ".join(text.format("results recorded " * (i == 0)) for i, text in enumerate(texts))


def article(name: str) -> str:
    """Return the article of the spoken name: an H100, a B200."""
    return "an" if name[:1] in "AEFHILMNORSX" else "a"


@cache
def _sets() -> list[dict[str, Any]]:
    text = (data_folder("reports") / f"{EXPLAINED}.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)["compared"]
    return found

"""Table models of planted functions, in numpy that shares no code with the inference; compiled tables against numpy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from accprobe.function.candidates import Hypothesis
from accprobe.function.compositions import truncated_units
from accprobe.function.fit import infer_table_model
from accprobe.function.model import SCALINGS, FunctionModel
from accprobe.function.quadratic import IN_CACHE
from accprobe.function.reference import FormatConversion, special_words, unlike
from accprobe.function.statistics import Pass
from accprobe.isa.formats import FORMATS, Format
from accprobe.records.functions import TableModelRecord
from accprobe.report.report import Report

Words = Any


def truncated_square(x: Words, kept: int = 17) -> Words:
    """Return the sum of the partial products of x, each without its bits below 2^18. kept: how many bits are multiplied."""
    places = np.arange(17 - kept, 17)
    return ((x[:, None] // 2**places % 2) * (x[:, None] // 2 ** (18 - places))).sum(axis=1) // 2


SQUARES: dict[str, Callable[[Words], Words]] = {
    "truncated": truncated_square,
    "exact": lambda x: x * x // 2**19,
    "half": lambda x: truncated_square(x, 8),
}


@cache
def squares(kind: str) -> Words:
    """Return the squares of all 17-bit numbers."""
    return SQUARES[kind](np.arange(2**17))


@dataclass(frozen=True)
class PlantedTable:
    """f on [1, 2) by its value, slope and half its curvature at each segment's start, in units of 2^-unit."""

    value: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    half_curvature: Callable[[Any], Any]
    segments: int
    unit: int = 39
    bias: int = 0
    square: str = "truncated"

    def at(self, fraction: Words) -> Words:
        """Return table values of 23-bit fractions."""
        size = 2**23 // self.segments
        segment, x = np.divmod(fraction, size)
        start = 1 + np.arange(self.segments) / self.segments
        scale = 2.0**self.unit
        c0 = np.rint(self.value(start) * scale).astype(np.int64) + self.bias
        c1 = np.rint(self.slope(start) * scale / 2**23).astype(np.int64)
        wide = 2**17 // size
        c2 = np.rint(self.half_curvature(start) * scale * 2.0**19 / 2**46 / wide**2).astype(np.int64)
        return c0[segment] + c1[segment] * x + c2[segment] * squares(self.square)[x * wide]


def truncated_words(values: Words, exponent: Words) -> Words:
    """Return f32 words of positive values · 2^exponent, truncated to 24 bits; subnormal ones are zero."""
    drop = np.frexp(values.astype(np.float64))[1] - 24
    whole = np.where(drop > 0, values >> np.maximum(drop, 0), values)
    result = np.ldexp(whole.astype(np.float64), exponent + np.maximum(drop, 0))
    tiny = result < 2.0**-126
    with np.errstate(over="ignore"):
        return np.where(tiny, 0, result.astype(np.float32).view(np.uint32)).astype(np.uint32)


def in_parts(device: Callable[[Words], Words]) -> Callable[[Words], Words]:
    """Return a device that computes parts which fit in a cache."""
    return lambda given: np.concatenate([device(part) for part in np.array_split(given, (len(given) >> 16) + 1)])


def reciprocal(table: PlantedTable) -> Callable[[Words], Words]:
    """Return a device that computes 1 / x from a table of 1 / 1.m."""

    @in_parts
    def words(given: Words) -> Words:
        sign, exponent, fraction = given >> 31, (given >> 23 & 255).astype(np.int64), (given & 0x7FFFFF).astype(np.int64)
        found = truncated_words(table.at(fraction), 127 - exponent - table.unit)
        found = np.where(exponent == 0, 0x7F800000, np.where(exponent == 255, 0, found)) | sign << 31
        return np.where((exponent == 255) & (fraction != 0), 0x7FFFFFFF, found).astype(np.uint32)

    return words


def inverse_root(even: PlantedTable, odd: PlantedTable) -> Callable[[Words], Words]:
    """Return a device that computes 1 / √x from a table for each parity of the exponent."""

    @in_parts
    def words(given: Words) -> Words:
        exponent, fraction = (given >> 23 & 255).astype(np.int64) - 127, (given & 0x7FFFFF).astype(np.int64)
        rest = exponent % 2
        values = np.zeros_like(fraction)
        for parity, table in enumerate((even, odd)):
            values[rest == parity] = table.at(fraction[rest == parity])
        found = truncated_words(values, -(exponent - rest) // 2 - even.unit)
        found = np.where(exponent == -127, 0x7F800000 | given >> 31 << 31, np.where(exponent == 128, 0, found))
        invalid = (given >> 31 == 1) & (exponent > -127) | (exponent == 128) & (fraction != 0)
        return np.where(invalid, 0x7FFFFFFF, found).astype(np.uint32)

    return words


def logarithm(table: PlantedTable) -> Callable[[Words], Words]:
    """Return a device that computes log2(x): a table of log2(1.m) without two bits, one's complement of negative sums."""

    @in_parts
    def words(given: Words) -> Words:
        exponent, fraction = (given >> 23 & 255).astype(np.int64) - 127, (given & 0x7FFFFF).astype(np.int64)
        total = exponent * 2 ** (table.unit - 2) + table.at(fraction) // 4
        negative = total < 0
        found = truncated_words(np.where(negative, -1 - total, total), np.full_like(total, 2 - table.unit)) | negative * 2**31
        found = np.where(exponent == -127, 0xFF800000, np.where(exponent == 128, 0x7F800000, found))
        invalid = (given >> 31 == 1) & (exponent > -127) | (exponent == 128) & (fraction != 0)
        return np.where(invalid, 0x7FFFFFFF, found).astype(np.uint32)

    return words


def cosine(table: PlantedTable) -> Callable[[Words], Words]:
    """Return a device that computes cos(x) from a table of sines of a quarter turn; x · 1/2π is truncated to f32."""

    @in_parts
    def words(given: Words) -> Words:
        with np.errstate(invalid="ignore", over="ignore"):
            x = np.abs(given.astype(np.uint32).view(np.float32).astype(np.float64))
        fraction, exponent = np.frexp(np.where(np.isfinite(x) & (x >= 2**-100), x, 0) * float(np.float32(1 / (2 * np.pi))))
        phase = np.floor(np.floor(fraction * 2**24) * 2.0 ** np.minimum(exponent + 1, 25)).astype(np.int64) % 2**25
        quarter, position = phase // 2**23 + 1, phase % 2**23
        values = table.at(np.where(quarter % 2 == 1, 2**23 - 1 - position, position))
        found = truncated_words(values, np.full_like(values, -table.unit)) | (quarter // 2 % 2) * 2**31
        return np.where(np.isfinite(x), found, 0x7FFFFFFF).astype(np.uint32)

    return words


LOGARITHM = (np.log2, lambda s: 1 / (s * np.log(2)), lambda s: -0.5 / (s**2 * np.log(2)))
QUARTER = np.pi / 2
SINE = (
    lambda s: np.sin(QUARTER * (s - 1)),
    lambda s: QUARTER * np.cos(QUARTER * (s - 1)),
    lambda s: -0.5 * QUARTER**2 * np.sin(QUARTER * (s - 1)),
)
RECIPROCAL = (lambda s: 1 / s, lambda s: -1 / s**2, lambda s: 1 / s**3)
INVERSE_ROOT = (lambda s: s**-0.5, lambda s: -0.5 * s**-1.5, lambda s: 0.375 * s**-2.5)
# For odd exponents x = 2 · 1.m.
INVERSE_ROOT_OF_TWICE = tuple(lambda s, each=each: each(s) * 2**-0.5 for each in INVERSE_ROOT)


_F32 = FORMATS["f32"]

PLANTS = {
    "128 segments": reciprocal(PlantedTable(*RECIPROCAL, segments=128, bias=2023)),
    "an exact square": reciprocal(PlantedTable(*RECIPROCAL, segments=128, square="exact")),
    "two tables": inverse_root(
        PlantedTable(*INVERSE_ROOT, segments=64, unit=40, bias=1 << 14),
        PlantedTable(*INVERSE_ROOT_OF_TWICE, segments=64, unit=40, bias=1 << 14),
    ),
    "a logarithm": logarithm(PlantedTable(*LOGARITHM, segments=64, unit=38, bias=2)),
    "a cosine": cosine(PlantedTable(*SINE, segments=64, unit=37)),
}

SEGMENTS = {"two tables": [64, 64], "128 segments": [128], "an exact square": [128]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "two tables")) for name in PLANTS])
def test_a_planted_table_predicts_every_word(name: str) -> None:
    """F32Words of every size and sign, and of two octaves, by the model and by its record."""
    device = PLANTS[name]
    model, contradicted = infer_table_model(device)
    assert model is not None, contradicted
    rng = np.random.default_rng(0)
    octaves = np.arange(127 << 23, 129 << 23, 401, dtype=np.uint32)
    words = np.concatenate([rng.integers(0, 1 << 32, 1 << 16, np.uint32), octaves])
    assert np.array_equal(model.words(words), device(words))
    kept = TableModelRecord.model_validate_json(model.record.model_dump_json())
    assert np.array_equal(FunctionModel(kept).words(words[::64]), device(words[::64]))
    segments = [len(table.coefficients) for table in model.tables]
    assert segments == SEGMENTS.get(name, [64])


def test_another_squarer_is_refused() -> None:
    model, contradicted = infer_table_model(reciprocal(PlantedTable(*RECIPROCAL, segments=128, square="half")))
    assert model is None
    assert "power, table 0: 128 segments, truncated square" in contradicted


def test_one_wrong_word_is_found_with_its_place() -> None:
    def device(words: Any) -> Any:
        return words ^ (words == 0x3FC12345)

    def identity(words: Any) -> Any:
        return words

    done = Pass(_F32, Hypothesis("identity", identity))
    for start in range(0x3F000000, 0x41000000, 1 << 20):
        words = np.arange(start, start + (1 << 20), dtype=np.uint32)
        done.add(words, device(words))
    assert (done.mismatches, done.first) == (1, (0x3FC12345, 0x3FC12344, 0x3FC12345))


@pytest.mark.parametrize(
    ("function", "fmt", "digest"),
    [
        ("exp2", "f16", "0b1bab5ab5e9f0b6"),
        ("tanh", "f16", "52bd79238ac307ca"),
        ("exp2", "bf16", "b70d00fc43d804d6"),
        ("tanh", "bf16", "d7cc5224b1ee4e49"),
    ],
)
def test_units_of_16_bit_formats_truncate_those_of_f32(function: str, fmt: str, digest: str) -> None:
    """The SHA-256 of all 65,536 results of ex2.approx.f16 and others on an H100."""
    model, *_ = truncated_units(function, FORMATS[fmt], FORMATS[fmt])
    assert hashlib.sha256(model.words(np.arange(65536, dtype=np.uint16)).tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("fmt", [each for each in FORMATS.values() if each.is_float and each.bits <= 8], ids=str)
def test_narrow_formats_have_only_the_special_words_that_they_encode(fmt: Format) -> None:
    """Scales have no sign, ue8m0 no zero, and e2m1, e2m3 and e3m2 no NaN."""
    words = np.arange(1 << fmt.bits, dtype=np.uint8)
    values, special = fmt.values(words), special_words(fmt)
    assert ("NaN" in special, "+0" in special) == (np.isnan(values).any(), (values == 0).any())
    assert not unlike(FormatConversion(nan=None).words(values, fmt), words, fmt, any_nan=True).any()


# Borders: of subnormal numbers, f16, powers of two, tables, overflow and infinity, and halves between numbers.
STARTS = (0, 0x7FF800, 0x387FF800, 0x3F7FF800, 0x3F87F800, 0x40490000, 0x40FFF800, 0x42FBF800, 0x477FF800, 0x4EFFF800)
BEGINS = [sign << 31 | start for sign in (0, 1) for start in (*STARTS, 0x7E7FF800, 0x7F7FF800)]


REDUCTIONS: tuple[dict[str, Any], ...] = (
    {"reduction": "exp2"},
    {"reduction": "log2"},
    *({"reduction": "turns", "parameters": {"quarters": quarters}} for quarters in (0, 1)),
    {"reduction": "power", "parameters": {"period": 1, "direction": -1}},
)


def recorded(name: str) -> TableModelRecord:
    row = next(row for row in Report.load("functions-h200").functions if row.name == name)
    assert isinstance(row.model, TableModelRecord)
    return row.model


@cache
def models() -> dict[str, FunctionModel]:
    """Return models of every reduction and scaling; the table of 2^x serves all."""
    exp2, tanh = recorded("ex2.approx.ftz.f32"), recorded("tanh.approx.f32")
    table = exp2.tables[0]
    exact = table.model_copy(update={"square": "exact", "unit": -37})
    found = {f"{each}": exp2.model_copy(update=each) for each in REDUCTIONS}
    found |= {f"scaling {i}": exp2.model_copy(update={"tables": (exact,), "scalings": s}) for i, s in enumerate(SCALINGS)}
    found["two tables"] = TableModelRecord(
        reduction="power",
        parameters={"period": 2, "direction": -1},
        tables=(table, exact.model_copy(update={"unit": -39})),
        specials={"nan": "0x7"},
        exact={"0x40000000": "0x9"},
        first={"0": 3 << 37},
        flushed=False,
    )
    assert tanh.reduction == "octaves"
    return {name: FunctionModel(record) for name, record in (found | {"octaves": tanh}).items()}


@pytest.mark.parametrize("name", models())
def test_compiled_tables_compute_what_numpy_computes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    ranges = [np.arange(begin, begin + 64) for begin in BEGINS]
    words = np.concatenate([*ranges, np.arange(0, 1 << 32, (1 << 32) // (IN_CACHE + 1))]).astype(np.uint32)
    model, found = models()[name], []
    for is_compiled in (True, False):
        monkeypatch.setattr("accprobe.evaluate.tiles.pays", lambda seconds, pays=is_compiled: pays)
        found.append(model.words(words))
    assert np.array_equal(*found)

"""Compare a function of a GPU with its model on all 2^32 operands, in one kernel.

The kernel, probes/verify_function.cu, has table models and conversions in CUDA C++. It counts what `statistics.measure_pass`
counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.build import compiler
from accprobe.build.probes import device_code
from accprobe.function.candidates import Hypothesis
from accprobe.function.model import SPECIAL_CLASSES
from accprobe.function.reference import ROUNDING_MODES, FormatConversion
from accprobe.function.statistics import MOST_COUNTEREXAMPLES, Pass, UlpErrors
from accprobe.isa.formats import Format
from accprobe.report.functions import ConversionRecord, TableModelRecord

# Storage types of CUDA C++ by bits.
STORAGE = {8: "unsigned char", 16: "unsigned short", 32: "unsigned int", 64: "unsigned long long"}
# Reference functions as CUDA C++ expressions of a double.
EXPRESSIONS = {
    "identity": "x",
    "exp": "exp(x)",
    "expm1": "expm1(x)",
    "log": "log(x)",
    "log10": "log10(x)",
    "log1p": "log1p(x)",
    "tan": "tan(x)",
    "sigmoid": "1 / (1 + exp(-(x)))",
    "silu": "((x) < -800 ? 0.0 : (x) / (1 + exp(-(x))))",
    "gelu": "((x) < -60 ? 0.0 : (x) * 0.5 * erfc(-(x) * 0.70710678118654752))",
    "erf": "erf(x)",
    "square": "(x) * (x)",
    "negative": "-(x)",
    "absolute": "fabs(x)",
    "exp2": "exp2(x)",
    "log2": "log2(x)",
    "reciprocal": "1.0 / (x)",
    "sqrt": "sqrt(x)",
    "rsqrt": "1.0 / sqrt(x)",
    "sin": "sin(x)",
    "cos": "cos(x)",
    "tanh": "tanh(x)",
}
THREADS, BLOCKS = 256, 2048
# Operands whose results another program computes at once, and those of each thread.
CHUNK, EACH = 1 << 24, 512
FROM_ARRAY = 3
WORDS_OF_32_BITS = 1 << 32

_Numbers = NDArray[Any]


def _struct(**fields: Any) -> np.dtype[Any]:
    """Return a struct of verify_function.cu: int64 fields unless another type is given."""
    return np.dtype([(name, *(kind if isinstance(kind, tuple) else (kind,))) for name, kind in fields.items()])


def _integers(names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), "i8")


_FORMAT = _struct(**_integers("is_float is_signed bits sign_bit ignored mantissa min_exponent largest infinity"))
_CONVERSION = _struct(**_integers("rounding overflow infinite nan flushed relu flushed_operands keeps_nan nan_shift"))
_SCALING = _struct(**_integers("size below"), limit="f8", factor="f8", then="i8", value="f8")
_TABLE = _struct(**_integers("segment_bits exact_square unit has_first first ignored coefficients"))
_TABLES = _struct(
    **_integers("reduction period direction dropped quarters lowest above flushed count exact_count scaling_count"),
    specials=("i8", 6),
    exact=("i8", (16, 2)),
    scalings=(_SCALING, 2),
    tables=(_TABLE, 32),
)
_MODEL = _struct(kind="i8", any_nan="i8", operand=_FORMAT, result=_FORMAT, conversion=_CONVERSION, tables=_TABLES)
_REALS = {"total": "f8", "largest": "f8"}
COUNTS = _struct(**dict.fromkeys(["mismatches", "first", "digest", "count", "correct", "against", "at"], "u8"), **_REALS)

REDUCTIONS = ("power", "exp2", "log2", "turns", "octaves")
AFTER = ("times", "plus", "square")


def can_verify(operand: Format, result: Format, function: str) -> bool:
    """Return whether the kernel has these formats and this reference function."""
    return operand.bits == 32 and result.kind != "scale" and function in EXPRESSIONS


def has(model: Hypothesis | None) -> bool:
    """Return whether the kernel can evaluate a model. Without one (None) it measures errors only."""
    return model is None or model.record is not None


def source(head: str, function: str) -> str:
    """Return the complete CUDA C++ of an instruction's kernel. head: its types and APPLY."""
    return f"{head}#define REFERENCE(x) ({EXPRESSIONS[function]})\n{device_code('verify_function.cu')}"


def kernel_parameters(model: Hypothesis | None, operand: Format, result: Format) -> tuple[_Numbers, _Numbers]:
    """Return the kernel's Model, and the coefficients of its tables."""
    p = np.zeros((), _MODEL)
    for name, fmt in (("operand", operand), ("result", result)):
        _fill(p[name], **_format(fmt))
    coefficients = np.zeros((1, 3), np.int64)
    if model is not None:
        p["any_nan"] = model.any_nan
        if isinstance(model.record, ConversionRecord):
            p["kind"] = 1
            _fill(p["conversion"], **_conversion(model.record, operand, result))
        elif isinstance(model.record, TableModelRecord):
            p["kind"] = 2
            p["tables"], coefficients = table_parameters(model.record)
    return p, coefficients


def _fill(struct: Any, **values: Any) -> None:
    for name, value in values.items():
        struct[name] = value


def _format(fmt: Format) -> dict[str, int]:
    return {
        "is_float": fmt.is_float,
        "is_signed": fmt.kind == "signed",
        "bits": fmt.bits,
        "sign_bit": fmt.sign_bit,
        "ignored": fmt.ignored_low_bits,
        "mantissa": fmt.mantissa_bits,
        "min_exponent": fmt.min_exponent,
        "largest": fmt.largest,
        "infinity": -1 if fmt.infinity is None else fmt.infinity,
    }


def _conversion(record: ConversionRecord, operand: Format, result: Format) -> dict[str, int]:
    conversion = FormatConversion(nan=None if record.nan is None else int(record.nan, 16))
    return {
        "rounding": ROUNDING_MODES.index(record.rounding),
        "overflow": conversion.too_large(result, record.overflow),
        "infinite": conversion.too_large(result, record.infinite),
        "nan": conversion.nan_word(result),
        "flushed": record.flushed,
        "relu": record.relu,
        "flushed_operands": record.flushed_operands,
        "keeps_nan": record.keeps_nan,
        "nan_shift": operand.storage_bits - result.storage_bits,
    }


def table_parameters(record: TableModelRecord) -> tuple[_Numbers, _Numbers]:
    """Return the kernel's Tables, and their coefficients."""
    p = np.zeros((), _TABLES)
    parameters: dict[str, Any] = {"period": 1} | record.parameters
    ignored = parameters.pop("ignored", (0,) * len(record.tables))
    p["lowest"] = parameters.pop("first", 0)
    _fill(p, **parameters, reduction=REDUCTIONS.index(record.reduction), flushed=record.flushed, count=len(record.tables))
    p["specials"] = [int(record.specials[name], 16) if name in record.specials else -1 for name in SPECIAL_CLASSES]
    _fill(p, exact_count=len(record.exact), scaling_count=len(record.scalings))
    for place, (word, found) in zip(p["exact"], record.exact.items(), strict=False):
        place[:] = int(word, 16), int(found, 16)
    for place, scaling in zip(p["scalings"], record.scalings, strict=False):
        _fill(place, **(scaling.model_dump() | {"then": AFTER.index(scaling.then)}))
    row = 0
    for number, (place, table) in enumerate(zip(p["tables"], record.tables, strict=False)):
        segments = len(table.coefficients)
        first = record.first.get(str(number))
        _fill(place, segment_bits=table.bits - (segments.bit_length() - 1), exact_square=table.square == "exact")
        _fill(place, unit=table.unit, has_first=first is not None, first=first or 0, ignored=ignored[number], coefficients=row)
        row += segments
    return p, np.concatenate([np.array(table.coefficients, np.int64) for table in record.tables])


def verify_callable(subject: Any, function: str, model: Hypothesis | None, progress: Callable[[int], None]) -> Pass | None:
    """Compare the results of a function of cupy arrays with a model; None if the kernel has not its formats and function.

    Raises AccprobeError if the kernel does not compile.
    """
    function = function or "identity"
    if not subject.on_device or subject.result.bits > 32 or not can_verify(subject.operand, subject.result, function):
        return None
    from accprobe.devices.cuda import CudaDevice

    gpu = CudaDevice(int(subject.device.partition(":")[2] or 0))
    head = f"using Result = {STORAGE[subject.result.storage_bits]};\n#define GIVEN\n"
    cubin = compiler.compile_source(source(head, function), gpu.architecture, f"the verification of {function}")
    numbers, coefficients = kernel_parameters(None, subject.operand, subject.result)
    numbers["kind"], numbers["any_nan"] = (FROM_ARRAY, model.any_nan) if model else (0, 0)
    found = []
    with gpu.lend(f"failed to verify {subject.name}") as cupy:
        kernel = cupy.RawModule(path=str(cubin.path)).get_function("verify")
        given = [cupy.asarray(np.frombuffer(numbers.tobytes(), np.uint8)), cupy.asarray(coefficients)]
        for begin in range(0, WORDS_OF_32_BITS, CHUNK):
            first = max(begin - 1, 0)  # the neighbour of the chunk's first operand
            words = cupy.arange(first, begin + CHUNK, dtype=np.int64).astype(np.uint32)
            results = subject.words(words)
            wanted = results if model is None else model.words(words).astype(results.dtype)
            counts = cupy.zeros(CHUNK // EACH * COUNTS.itemsize, np.uint8)
            arrays = (cupy.ascontiguousarray(results), cupy.ascontiguousarray(wanted), np.uint64(first))
            launch = (*given, counts, np.uint64(begin), np.uint64(EACH), *arrays)
            kernel((CHUNK // EACH // THREADS,), (THREADS,), launch)
            found.append(summed(counts.get().view(COUNTS)))
            progress(begin + CHUNK)
    return as_pass(np.concatenate(found), subject.words, model)


def summed(counts: _Numbers) -> _Numbers:
    """Return the counts of all threads as one."""
    best, wrong = counts["largest"].argmax(), np.flatnonzero(counts["mismatches"])
    one = counts[best : best + 1].copy()
    for name in ("mismatches", "digest", "count", "correct", "against", "total"):
        one[name] = counts[name].sum()
    one["first"] = counts["first"][wrong[0]] if len(wrong) else 0
    return one


def as_pass(counts: _Numbers, function: Any, model: Hypothesis | None) -> Pass:
    """Return the sums and the largest error of all threads, and some counterexamples. function: from operands to results."""
    best = int(counts["largest"].argmax())
    errors = UlpErrors(
        largest=float(counts["largest"][best]),
        at=int(counts["at"][best]),
        total=float(counts["total"].sum()),
        **{name: int(counts[name].sum()) for name in ("count", "correct", "against")},
    )
    places = counts["first"][counts["mismatches"] > 0][:MOST_COUNTEREXAMPLES].astype(np.uint32)
    first: list[tuple[int, int, int]] = []
    if len(places) and model is not None:
        first = [tuple(map(int, row)) for row in zip(places, function(places), model.words(places), strict=True)]  # type: ignore[misc]
    digest = int(counts["digest"].sum(dtype=np.uint64))
    return Pass(WORDS_OF_32_BITS, int(counts["mismatches"].sum()), first, digest, errors)

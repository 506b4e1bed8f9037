"""Bit-exact results of a recorded or published model for your operands, computed without a GPU.

    import ml_dtypes, numpy as np
    import accprobe

    a = np.ones((16, 4096), ml_dtypes.float8_e4m3fn)
    b = np.full((4096, 8), 0.0625, ml_dtypes.float8_e4m3fn)
    d = accprobe.predict("h200:wgmma.m64n8k32.f32.e4m3.e4m3", a, b)
    promoted = accprobe.predict("h200:wgmma.m64n8k32.f32.e4m3.e4m3", a, b, promote_every=128)

A model of an instruction predicts a GEMM that is a chain of it: C of each block along K is the sum of the blocks before. With
promotion the chain restarts every so many products and its sum is added to a float32 sum, as CUTLASS and DeepGEMM do with fp8.
A model of a product (`products-h200:torch:mm`) predicts that library call at the measured shape.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accprobe.callables.arrays import is_tensor, library_of
from accprobe.callables.operands import scale_words
from accprobe.callables.spec import Spec
from accprobe.composites.steps import compute_composite
from accprobe.errors import AccprobeError, UnknownName
from accprobe.evaluate.any_order import on_cpu
from accprobe.evaluate.product import ScaleWords, product
from accprobe.function.records import function_words
from accprobe.gemm.epilogue import recorded_way, with_addend
from accprobe.gemm.verification import evaluator_of
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.product import ProductModel, chained
from accprobe.records.functions import FunctionRow
from accprobe.records.products import ProductRow
from accprobe.report.names import EXAMPLE, NamedModel, named_claims, named_model, split_row

# Products that an error lists.
ROWS_LISTED = 4

ScaleArrays = tuple[Any, Any] | None


def predict(
    like: str,
    a: Any,
    b: Any = None,
    c: Any = None,
    *,
    scales: ScaleArrays = None,
    promote_every: int | None = None,
    dim: int = -1,
) -> Any:
    """Return D [M, N] of a [M, K] and b [K, N] with the bits of the model that `like` names.

    like names one of these:
    - an instruction that `accprobe.report.names` resolves, such as "h200:wgmma.m64n8k32.f32.e4m3.e4m3" or "QGMMA". A
      UserWarning names the chosen instruction if the name matches several or only another n was measured.
    - a product of a report, such as "products-h200:torch:mm". The shapes and types of a and b choose its row;
      if several rows fit, add words of one.
    - a recorded function, such as "functions-h200:ex2.approx.ftz.f32". a is the only operand; the result has its shape.
      Unsigned words give words.
    - a recorded reduction, such as "reductions-h200:torch:sum", along dimension `dim` of the matrix a. Its row is chosen by
      the shape and type of a, and by options in the name, such as "reductions-h200:torch.distributed:all_reduce op=avg".
      b has the targets [rows] of torch:cross_entropy.

    a, b, c: numpy or cupy arrays or torch tensors in the model's formats, or unsigned arrays of the bit patterns of floats.
    Formats are the small floats of ml_dtypes and torch, float16, float32 (for tf32, low bits are ignored), float64 and 8-bit
    integers: int8 is s8, uint8 is u8. s4 and u4 are int4 and uint4 of ml_dtypes, or uint8 from 0 to 15.
    c: [M, N], of a product also [N], in D's type: the start of an instruction's chain, or of the float32 sum with promotion;
    None: zero. A product that was probed with C or a bias, such as torch:linear, needs it.
    scales: float32 scales of A and of B for a scaled product. "tensor": numbers. "row": [M, 1] and [1, N]. "1x128":
    [M, K / 128] and [K / 128, N]. "128x128": [M, K / 128] and [K / 128, N / 128].
    promote_every: products after which an instruction's chain restarts, a multiple of the instruction's K; None: never. K is
    padded with zeros to a multiple of the instruction's K.
    Returns an array or a tensor, as A is, of D's type; float32 with promotion. NaN patterns are preserved.

    Raises AccprobeError if shapes, types or names do not fit. A UserWarning says that a product's model is not confirmed.
    """
    for array in (a, *(x for x in (b, c) if x is not None)):
        if not hasattr(array, "dtype"):
            raise AccprobeError(f"an operand is a {type(array).__name__}: give arrays of numpy or cupy, or torch tensors")
    if not like or not isinstance(like, str):
        raise UnknownName(f"like={like!r:.40} names nothing; give a report and an instruction, {EXAMPLE}")
    if type(dim) is not int or dim not in (-2, -1, 0, 1):
        raise AccprobeError(f"dim={dim!s:.40} is not a dimension of a matrix: give -2, -1, 0 or 1")
    options = {"c": c, "scales": scales, "promote_every": promote_every, "dim": None if dim == -1 else dim}
    if b is None:
        return _of_one_array(like, a, options)
    if type(a).__module__.partition(".")[0] == "cupy":
        return _predict_cupy(like, a, b, c, scales=scales, promote_every=promote_every, dim=dim)
    for name, x in (("b", b), ("c", c)):
        if is_tensor(a) and is_tensor(x) and x.device != a.device:
            raise AccprobeError(f"`{name}` is on {x.device} and `a` on {a.device}: move them to one device")
    rows = named_claims(like, ProductRow)
    if not rows and split_row(like)[1] and named_claims(like, FunctionRow):
        raise AccprobeError(f"{like} is a function: it takes one array")
    if not rows:
        if scales is not None:
            raise AccprobeError(f"{like} has no scales: name a scaled product, such as products-h200:torch:_scaled_mm")
        _refuse_given(like, "an instruction", options, "dim")
        return _of_instruction(like, a, b, c, promote_every)
    if all(row.is_reduction for row in rows):
        return _of_reduction(like, rows, a, options, b)
    _refuse_given(like, "a product", options, "promote_every", "dim")
    return _of_product(like, rows, a, b, c, scales)


def _refuse_given(like: str, kind: str, options: Mapping[str, Any], *without: str) -> None:
    """Raise AccprobeError if an option is given that has no effect on this kind."""
    if given := next((name for name in without if options[name] is not None), ""):
        raise AccprobeError(f"{like} is {kind}: it takes no {given}")


def _of_one_array(like: str, x: Any, options: Mapping[str, Any]) -> Any:
    if not split_row(like)[0]:
        one = "for a function or a reduction of one array, give REPORT:NAME"
        raise UnknownName(f"B is missing: {like} names no report, and an instruction needs A and B; {one}")
    if rows := [row for row in named_claims(like, ProductRow) if row.is_reduction]:
        return _of_reduction(like, rows, x, options)
    functions = named_claims(like, FunctionRow)
    if len(functions) != 1:
        some = f"{len(functions)} functions, such as {'; '.join(row.title for row in functions[:ROWS_LISTED])}: name one"
        raise UnknownName(
            f"{like} means {some if functions else 'no function: B is missing, which a product or an instruction needs'}"
        )
    _refuse_given(like, "a function", options, *options)
    return _of_function(functions[0], x)


def _of_reduction(like: str, rows: Sequence[ProductRow], x: Any, options: Mapping[str, Any], targets: Any = None) -> Any:
    """Return the reductions of x along a dimension, of D's type."""
    _refuse_given(like, "a reduction", options, "c", "scales", "promote_every")
    first = options["dim"] in (0, -2) and x.ndim == 2
    shape = (1, x.shape[0]) if x.ndim == 1 else tuple(x.shape[::-1] if first else x.shape)
    name = "all" if x.ndim == 1 else "first" if first else "last"
    near = [row for row in rows if row.options.get("dim") == name]
    typed = [row for row in near if _has_type(x, FORMATS[row.a])]
    given = f"x {list(x.shape)} {str(x.dtype).removeprefix('torch.')}" + f" along the {name} dimension" * (name != "all")
    row = _only(like, "reduction", [row for row in typed if (row.n, row.k) == shape], given, typed or near or rows)
    model = _usable_model(like, row)
    words = _patterns(x, FORMATS[row.a], "x")
    words = np.ascontiguousarray(words.T if first else words.reshape(shape))
    if row.composite is not None:
        d = compute_composite(row, model, words, targets)
        results = d.shape if d.shape[1] == row.k else d.shape[:1]  # [rows, K], or [rows] of torch for [rows, 1]
        return library_of(x).operand("d", d.reshape(() if row.composite.rows else results), FORMATS[row.out])
    if targets is not None:
        raise AccprobeError(f"{like} is a reduction: it takes one array")
    ones = np.full((1, row.k), model.a.encode(False, 1, row.factor_exponent), model.a.dtype)
    d = product(model, ones, words)[0]
    return library_of(x).operand("d", d.reshape(() if x.ndim == 1 else d.shape), model.result)


def _of_function(row: FunctionRow, x: Any) -> Any:
    """Return the results of a recorded function for values or unsigned words x, of any shape, of the same kind."""
    operand, result = FORMATS[row.operand], FORMATS[row.result]
    words = function_words(row, _patterns(x, operand, "x"))
    is_words = str(x.dtype).removeprefix("torch.") == str(operand.dtype) and not operand.is_integer
    return words if is_words else library_of(x).operand("d", words, result)


def _predict_cupy(like: str, a: Any, b: Any, c: Any, **options: Any) -> Any:
    """Predict on the CPU and copy the result back: words where cupy lacks the type."""
    import cupy

    a, b, c = (x.get() if isinstance(x, cupy.ndarray) else x for x in (a, b, c))
    d = predict(like, a, b, c, **options)
    return cupy.asarray(d if d.dtype.kind in "fiu" else d.view(f"u{d.itemsize}"))


def _of_instruction(like: str, a: Any, b: Any, c: Any, promote_every: int | None) -> Any:
    inst, model, _, remark = _fitting_model(like, a, b)
    _refuse_unchained(inst, promote_every)
    if remark:
        warnings.warn(remark, stacklevel=3)
    of_a, of_b = _operands(a, b, inst.a, inst.b)
    if inst.bit_op == "xor":  # a xor b = a·(1-b) + (1-a)·b
        of_a, of_b = np.hstack((of_a, of_a ^ 1)), np.vstack((of_b ^ 1, of_b))
    whole = chained(inst, model, of_a.shape[1], promote_every)
    if c is None:
        return _evaluate(a, whole, of_a, of_b)
    start, shape = _patterns(c, whole.result, "c"), (of_a.shape[0], of_b.shape[1])
    if start.shape != shape:
        raise AccprobeError(f"`c` has shape {list(start.shape)}; expected {list(shape)}")
    return library_of(a).operand("d", product(whole, of_a, np.ascontiguousarray(of_b.T), start), whole.result)


def _fitting_model(like: str, a: Any, b: Any) -> NamedModel:
    """Return the model that a name means. If others fit the name too and the operands do not fit it, use their types."""
    found = named_model(like)
    named = [library_of(x).received(x) for x in (a, b)]
    if not found.remark or (_has_type(a, found.inst.a) and _has_type(b, found.inst.b)):
        return found
    types = ["tf32" if each.fmt is FORMATS["f32"] else each.fmt.name for each in named if each and each.fmt]
    return named_model(like, ":".join(dict.fromkeys(types)) if len(types) == 2 else "")


def _refuse_unchained(inst: Instruction, promote_every: int | None) -> None:
    """Raise AccprobeError for an instruction or a promotion interval that makes no chain."""
    if inst.c is not inst.d:
        raise AccprobeError(f"{inst.name} has C in {inst.c} and D in {inst.d}: it cannot be chained")
    if inst.sparse or inst.scale is not None:
        more = "metadata" if inst.sparse else "block scales"
        raise AccprobeError(f"{inst.name} needs {more}, which emulation does not support")
    if promote_every is None:
        return
    if not isinstance(promote_every, int):
        raise AccprobeError(f"promote_every={promote_every!r} is not an integer: give a multiple of {inst.k}")
    if inst.is_integer:
        raise AccprobeError(f"promote_every={promote_every}: integers are never promoted")
    if promote_every <= 0 or promote_every % inst.k:
        raise AccprobeError(f"promote_every={promote_every}: give a positive multiple of {inst.k}, the K of {inst.name}")


def _of_product(like: str, rows: Sequence[ProductRow], a: Any, b: Any, c: Any, scales: ScaleArrays) -> Any:
    row, model = _fitting_row(like, rows, a, b, scales)
    way = recorded_way(row, c is not None)
    of_a, of_b = _operands(a, b, model.a, model.b)
    if way is None:
        return _evaluate(a, model, of_a, of_b, None if scales is None else _scale_words(row, scales))
    of_c = _patterns(c, model.result, "c")
    try:
        of_c = np.broadcast_to(of_c, (row.m, row.n))
    except ValueError:
        raise AccprobeError(f"`c` has shape {list(of_c.shape)}; expected {[row.m, row.n]} or [{row.n}]") from None
    d = with_addend(way, model, of_a, np.ascontiguousarray(of_b.T), of_c)
    return library_of(a).operand("d", d, model.result)


def _fitting_row(like: str, rows: Sequence[ProductRow], a: Any, b: Any, scales: ScaleArrays) -> tuple[ProductRow, ProductModel]:
    """Return the only row with the shapes and types of the operands, and its model. Raises AccprobeError."""
    typed = [row for row in rows if _has_type(a, FORMATS[row.a]) and _has_type(b, FORMATS[row.b])]
    fitting = [row for row in typed if (*a.shape, *b.shape) == (row.m, row.k, row.k, row.n) and _fits_scales(row, scales)]
    given = f"a {list(a.shape)} {a.dtype}, b {list(b.shape)} {b.dtype}, {'scales' if scales else 'no scales'}"
    row = _only(like, "product", _without_more_options(fitting) or fitting, given, typed or rows)
    return row, _usable_model(like, row)


def _only(like: str, kind: str, fitting: Sequence[ProductRow], given: str, others: Sequence[ProductRow]) -> ProductRow:
    """Return the only row. given: the operands. others: to list if there is none. Raises AccprobeError."""
    if len(fitting) == 1:
        return fitting[0]
    some = [row.title for row in fitting or others]
    named = "; ".join(some[:ROWS_LISTED]) + f"; and {len(some) - ROWS_LISTED} more" * (len(some) > ROWS_LISTED)
    if fitting:
        raise AccprobeError(f"{like} means {len(fitting)} {kind}s for {given}; add words of one of them: {named}")
    raise AccprobeError(f"{like} has no {kind} for {given}; it has {named}")


def _without_more_options(rows: Sequence[ProductRow]) -> list[ProductRow]:
    """Return the only row that no word chooses: each other row has the same result format and its options, and more."""
    return [
        row for row in rows if all(x is row or (x.out == row.out and x.options.items() > row.options.items()) for x in rows)
    ]


def _usable_model(like: str, row: ProductRow) -> ProductModel:
    """Return the only model of a row. Raises AccprobeError if it cannot predict results; warns if the row is not confirmed."""
    model = row.regions[0].model if len(row.regions) == 1 else None
    if row.probed_part:
        why = f"was probed in part only ({row.probed_part})"
    elif model is None:
        why = "has no single model for all elements of D"
    elif not model.is_ordered:
        why = "adds its partial sums in an unspecified order"
    else:
        if row.status != "confirmed":
            warnings.warn(f"{row.title} is {row.status}: {row.reason or 'its model is not verified'}", stacklevel=5)
        return model
    raise AccprobeError(f"{like}: {row.title} {why}, so its results cannot be predicted")


def _spec(row: ProductRow) -> Spec:
    return Spec(row.m, row.n, row.k, FORMATS[row.a], FORMATS[row.b], FORMATS[row.out], row.scale)


def _fits_scales(row: ProductRow, scales: ScaleArrays) -> bool:
    if scales is None or row.scale is None:
        return scales is None and row.scale is None
    return all(np.size(x) == m * n for x, (m, n) in zip(scales, _spec(row).scale_shapes, strict=True))


def _scale_words(row: ProductRow, scales: tuple[Any, Any]) -> ScaleWords:
    spec = _spec(row)
    arrays = (np.asarray(x.detach().cpu().numpy() if is_tensor(x) else x, np.float32) for x in scales)
    return scale_words(spec, *(x.reshape(shape) for x, shape in zip(arrays, spec.scale_shapes, strict=True)))


def _operands(a: Any, b: Any, fmt_a: Format, fmt_b: Format) -> tuple[Bits, Bits]:
    """Return the bit patterns of a [M, K] and b [K, N]. Raises AccprobeError."""
    of_a, of_b = _patterns(a, fmt_a, "a"), _patterns(b, fmt_b, "b")
    if of_a.ndim != 2 or of_b.ndim != 2 or of_a.shape[1] != of_b.shape[0]:
        raise AccprobeError(f"`a` has shape {list(of_a.shape)} and `b` {list(of_b.shape)}; expected [M, K] and [K, N]")
    return of_a, of_b


def _patterns(x: Any, fmt: Format, name: str) -> Bits:
    """Return the bit patterns of an array or a tensor. Raises AccprobeError unless it `_has_type` of the format."""
    if not _has_type(x, fmt):
        expected = fmt.dtype if fmt.ml_dtype is None else np.dtype(fmt.ml_dtype)
        words = "" if fmt.is_integer and fmt.bits == fmt.storage_bits else f", or bit patterns as {fmt.dtype}"
        raise AccprobeError(f"`{name}` has type {x.dtype}; expected {expected} ({fmt}){words}")
    found = library_of(x).patterns(x, fmt)
    fmt.refuse_wider(found, f"`{name}`")
    return found


def _has_type(x: Any, fmt: Format) -> bool:
    """Return whether an array or tensor has the type of a format, or unsigned words of its size, except of a whole integer."""
    found = library_of(x).received(x)
    if found is None:
        return False
    if fmt.is_integer and fmt.bits == fmt.storage_bits:
        return found.type == np.dtype(fmt.ml_dtype).name
    return found.type in (fmt.dtype.name, fmt.ml_dtype and np.dtype(fmt.ml_dtype).name)


def _evaluate(x: Any, model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Any:
    """Return D of a [M, K] and b [K, N] as an array like x, computed on the GPU of a tensor there."""
    evaluate = evaluator_of(str(x.device)) if is_tensor(x) else on_cpu
    return library_of(x).operand("d", evaluate(model, a, np.ascontiguousarray(b.T), scales), model.result)

"""`assert_same_bits`: a torch program gives the same bits as another, or as itself in another batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from accprobe.errors import AccprobeError
from accprobe.trace.both import ProgramRun, run_both
from accprobe.trace.summary import counts, trace_headline


def assert_same_bits(
    f: Callable[..., Any],
    g: Callable[..., Any] | None = None,
    *,
    inputs: Sequence[Any] = (),
    batch: tuple[int, int] | None = None,
) -> None:
    """Check that two torch programs give the same bits; the AssertionError names the first operation that does not, and why.

    g: the other program, which is f itself by default. inputs: arguments of both. batch: how many of the first rows of each
    tensor of `inputs` the two runs take; the first row of both is compared.

        assert_same_bits(model, torch.compile(model), inputs=[x])
        assert_same_bits(model, inputs=[x], batch=(1, 8))
    """
    __tracebackhide__ = True
    sizes = batch or (None, None)
    one, other = (
        ProgramRun(function=partial(each, *_rows(inputs, size))) for each, size in zip((f, g or f), sizes, strict=True)
    )
    found = run_both(one, other, mapping=f"batch={batch[0]}:{batch[1]}" if batch else "")
    if not found.comparison.equal:
        raise AssertionError(f"{trace_headline(found)}\n{counts(found)}")


def _rows(inputs: Sequence[Any], size: int | None) -> list[Any]:
    """Return the inputs with the first `size` rows of each tensor."""
    if size is None:
        return list(inputs)
    short = [tuple(x.shape) for x in inputs if hasattr(x, "shape") and (not x.shape or len(x) < size)]
    if short:
        raise AccprobeError(f"an input has shape {list(short[0])}: a batch of {size} takes {size} rows of each tensor")
    return [x[:size] if hasattr(x, "shape") else x for x in inputs]

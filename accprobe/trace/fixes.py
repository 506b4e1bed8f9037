"""Changes that make both sides of an origin equal. Each is tried with the recorded operands."""

from __future__ import annotations

from collections.abc import Iterator

from accprobe.trace.products import POSITIONS
from accprobe.trace.replay import RecordedCall, count_differing
from accprobe.trace.sides import OriginSide, same_part


def fixes(left: OriginSide, right: OriginSide) -> Iterator[str]:
    """Changes that make both sides equal, each of them tried with the recorded operands."""
    import torch

    if len(left.calls) != 1 or len(right.calls) != 1:
        return
    a, b = left.calls[0], right.calls[0]
    for name in ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction", "allow_tf32"):
        if (
            name in a.flags
            and (a.flags[name] or b.flags[name])
            and _agree(left, right, a.under(**{name: False}), b.under(**{name: False}))
        ):
            yield f"torch.backends.cuda.matmul.{name} = False"
    if _padded_agrees(left, right):
        rows = max(a.results[0].shape[0], b.results[0].shape[0])
        yield f"pad the batch to {rows} rows"
    if not torch.are_deterministic_algorithms_enabled() and not (a.repeats() and b.repeats()):
        torch.use_deterministic_algorithms(True)
        try:
            if _agree(left, right, a, b) and _agree(left, right, a, b):
                yield "torch.use_deterministic_algorithms(True)"
        except RuntimeError:
            pass
        finally:
            torch.use_deterministic_algorithms(False)


def _agree(left: OriginSide, right: OriginSide, a: RecordedCall, b: RecordedCall) -> bool:
    return same_part(a()[0], b()[0], left.mapped, right.mapped)


def _padded_agrees(left: OriginSide, right: OriginSide) -> bool:
    """Return whether a product with its rows repeated up to the number of the other side gives the other side's bits."""
    import torch

    small, large = sorted((left, right), key=lambda side: side.calls[0].results[0].shape[0])
    name, call, other = small.operations[0].packet, small.calls[0], large.calls[0]
    if name not in ("aten.mm", "aten.addmm"):
        return False
    position = POSITIONS[name][0]
    a, wanted = call.operands()[position].tensor, other.results[0].tensor
    rows = wanted.shape[0]
    if rows == len(a):
        return False
    padded = torch.cat([a] * -(-rows // len(a)))[:rows]
    got = call({position: padded})[0][: len(a)]
    return not count_differing(got, wanted[: len(a)])

"""One call of a callable, for a profiler to look at: `ncu … python -m accprobe.gemm` and what `arguments` makes."""

from __future__ import annotations

import json
import sys
from typing import get_args

from accprobe.gemm.adapter import of_ones
from accprobe.gemm.builtin import Options
from accprobe.gemm.callables import Asking, Opened, open_callable
from accprobe.gemm.spec import parse_shape
from accprobe.isa import formats
from accprobe.model.product import ScaleOf


def arguments(opened: Opened, given: Options) -> list[str]:
    """What launches the same call. given: the options as they were asked for."""
    called = opened.called
    spec = called.spec
    words = [called.name, spec.shape, spec.a.name, spec.b.name, spec.out.name, spec.scale or "none"]
    return [*words, called.handover.device, called.handover.arrays, json.dumps(dict(given))]


def opened_again(words: list[str]) -> Opened:
    """What `arguments` named."""
    name, shape, a, b, out, scale, device, arrays, options = words
    of = next((known for known in get_args(ScaleOf) if known == scale), None)
    asking = Asking(parse_shape(shape), formats.get(a), formats.get(b), formats.get(out), of)
    return open_callable(name, asking, json.loads(options), device, arrays)


def call_once(words: list[str]) -> None:
    """Calls it once, with ones."""
    called = opened_again(words).called
    called.product(*of_ones(called.spec))


if __name__ == "__main__":
    call_once(sys.argv[1:])

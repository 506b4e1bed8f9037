"""Call a callable once, for a profiler: `ncu … python -m accprobe.gemm` and the words of `arguments`."""

from __future__ import annotations

import json
import sys
from typing import get_args

from accprobe.gemm.callables.opening import Opened, ProductRequest, open_callable
from accprobe.gemm.callables.options import Options
from accprobe.gemm.operands import ones
from accprobe.gemm.spec import parse_shape
from accprobe.isa import formats
from accprobe.model.product import ScaleOf


def arguments(opened: Opened, options: Options) -> list[str]:
    """Return the words that launch the same call. options: as given, without defaults."""
    adapter = opened.adapter
    spec = adapter.spec
    words = [adapter.name, spec.shape, spec.a.name, spec.b.name, spec.out.name, spec.scale or "none"]
    return [*words, adapter.library.device, adapter.library.name, json.dumps(dict(options))]


def open_from_arguments(words: list[str]) -> Opened:
    """Open the callable that `arguments` describes."""
    name, shape, a, b, out, scale, device, arrays, options = words
    scale_of = next((known for known in get_args(ScaleOf) if known == scale), None)
    request = ProductRequest(parse_shape(shape), formats.get(a), formats.get(b), formats.get(out), scale_of)
    return open_callable(name, request, json.loads(options), device, arrays)


def call_once(words: list[str]) -> None:
    """Call the function once, with ones."""
    adapter = open_from_arguments(words).adapter
    adapter.product(*ones(adapter.spec))


if __name__ == "__main__":
    call_once(sys.argv[1:])

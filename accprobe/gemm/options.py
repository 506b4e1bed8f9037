"""Options of a callable, as `--option NAME=VALUE` gives them, and torch's global flags among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import Any

from accprobe.errors import AccprobeError, UnknownName, nearest

OptionValue = bool | int | float | str | None

FLAGS = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_tf32",
    "allow_fp16_accumulation",
)
"""Of `torch.backends.cuda.matmul`: what torch lets cuBLAS do."""

_WORDS: dict[str, OptionValue] = {"True": True, "true": True, "False": False, "false": False, "None": None, "none": None}


def parse_options(texts: Iterable[str]) -> list[dict[str, OptionValue]]:
    """Every combination of the values of "NAME=VALUE,VALUE" each. Raises AccprobeError."""
    several: dict[str, list[OptionValue]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not (name.isidentifier() and equals and values):
            raise AccprobeError(f"'{text}' is no option: give NAME=VALUE, such as use_fast_accum=True,False")
        if name in several:
            raise AccprobeError(f"option {name} is given twice: join its values by commas")
        several[name] = list(dict.fromkeys(map(parse_value, values.split(","))))
    return [dict(zip(several, values, strict=True)) for values in product(*several.values())]


def parse_value(text: str) -> OptionValue:
    """True, False, None, a whole number, another number, or the text."""
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def with_defaults(given: Mapping[str, OptionValue], defaults: Mapping[str, OptionValue], whose: str) -> dict[str, OptionValue]:
    """Every option, of the type that its default has. Raises UnknownName, AccprobeError."""
    for name, value in given.items():
        if name not in defaults:
            raise UnknownName(f"{whose} has no option '{name}'; {_nearest(name, defaults)}")
        usual = True if name in FLAGS else defaults[name]
        if usual is not None and type(value) is not type(usual):
            kind = {bool: "True or False", int: "a whole number", str: "a word"}[type(usual)]
            raise AccprobeError(f"option {name} of {whose} is {kind}, not {value}")
    return {**defaults, **given}


def _nearest(name: str, known: Mapping[str, OptionValue]) -> str:
    return nearest(name, known) if known else "it has none"


@contextmanager
def flags_set(torch: Any, flags: Mapping[str, OptionValue]) -> Iterator[None]:
    """torch's global flags as given inside, and as they were after."""
    matmul = torch.backends.cuda.matmul
    before = {name: getattr(matmul, name) for name in flags}
    try:
        for name, value in flags.items():
            setattr(matmul, name, value)
        yield
    finally:
        for name, was in before.items():
            setattr(matmul, name, was)


def under_flags(function: Callable[..., Any], flags: Mapping[str, OptionValue]) -> Callable[..., Any]:
    """The function of tensors, each call of it under torch's flags. Gradients are recorded, as in the user's own code."""
    import torch

    def called(*given: Any) -> Any:
        with flags_set(torch, flags):
            return function(*given)

    return called

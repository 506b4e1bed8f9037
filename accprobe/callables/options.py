"""Options of a callable (`--option NAME=VALUE`), including torch's global matmul flags."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import product
from typing import Any

from accprobe.errors import AccprobeError, UnknownName, nearest

OptionValue = bool | int | float | str | None
Options = Mapping[str, OptionValue]

# Flags of `torch.backends.cuda.matmul`, which control what cuBLAS may do.
FLAGS = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_tf32",
    "allow_fp16_accumulation",
)

_CONSTANTS: dict[str, OptionValue] = {"True": True, "true": True, "False": False, "false": False, "None": None, "none": None}


def parse_options(texts: Iterable[str]) -> list[dict[str, OptionValue]]:
    """Return every combination of the values in texts "NAME=VALUE,VALUE". Raises AccprobeError."""
    choices: dict[str, list[OptionValue]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not (name.isidentifier() and equals and values):
            raise AccprobeError(f"'{text}' is not an option: give NAME=VALUE, such as use_fast_accum=True,False")
        if name in choices:
            raise AccprobeError(f"option {name} is given twice: join its values by commas")
        choices[name] = list(dict.fromkeys(map(parse_value, values.split(","))))
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def parse_value(text: str) -> OptionValue:
    """Return True, False, None, an integer, a float or the text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def with_defaults(options: Options, defaults: Options, owner: str) -> dict[str, OptionValue]:
    """Return the options with defaults added. Raises UnknownName, or AccprobeError for an unsuitable type."""
    for name, value in options.items():
        if name not in defaults:
            raise UnknownName(f"{owner} has no option '{name}'; {nearest(name, defaults) if defaults else 'it has none'}")
        usual = True if name in FLAGS else defaults[name]
        if usual is not None and type(value) is not type(usual) and (type(usual), type(value)) != (float, int):
            kind = {bool: "True or False", int: "a whole number", float: "a number", str: "a word"}[type(usual)]
            raise AccprobeError(f"option {name} of {owner} is {kind}, not {value}")
    return {**defaults, **options}


def whole_option(options: Options, name: str) -> int:
    value = options[name]
    assert isinstance(value, int)
    return value


def positive_option(options: Options, name: str) -> int:
    if (count := whole_option(options, name)) < 1:
        raise AccprobeError(f"option {name} is {count}: give 1 or more")
    return count


def given_flags(options: Options, operands: str) -> dict[str, OptionValue]:
    """Return the given torch flags for operands of this format. f32 is multiplied as tf32 only on request."""
    flags = {name: options[name] for name in FLAGS if options.get(name) is not None}
    if operands in ("f32", "tf32"):
        flags.setdefault("allow_tf32", operands == "tf32")
    return flags


@contextmanager
def attributes_set(values: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set attributes of objects inside, and restore them. Raises AccprobeError if an object refuses a value."""
    before = []
    try:
        for holder, name, value in values:
            before.append((holder, name, getattr(holder, name)))
            try:
                setattr(holder, name, value)
            except Exception as e:
                raise AccprobeError(f"{name} cannot be set to {value}: {e}") from None
        yield
    finally:
        for holder, name, value in reversed(before):
            setattr(holder, name, value)


def flags_set(torch: Any, flags: Options) -> AbstractContextManager[None]:
    """Set torch's flags of matrix products inside, and restore them."""
    return attributes_set((torch.backends.cuda.matmul, name, value) for name, value in flags.items())


def under_flags(function: Callable[..., Any], flags: Options) -> Callable[..., Any]:
    """Return the function with torch's flags set in each call. Gradients are recorded, as in the user's own code."""
    import torch

    def with_flags(*operands: Any) -> Any:
        with flags_set(torch, flags):
            return function(*operands)

    return with_flags

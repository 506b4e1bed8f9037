"""Which callable is meant by a name: one that is listed, a function in a user's file, or one of a package."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.gemm.adapter import CallableAdapter
from accprobe.gemm.builtin import LISTED, Listed, Options, Ready, require
from accprobe.gemm.failures import one_sentence
from accprobe.gemm.handover import ARRAYS, Handover, open_handover
from accprobe.gemm.options import FLAGS, OptionValue, under_flags, with_defaults
from accprobe.gemm.spec import Spec, usual_result
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import ScaleOf

USUAL_SHAPE = (256, 256, 1024)
"""Where none is asked for."""


@dataclass(frozen=True)
class Own:
    """A function of the user's, or of a package. file: where it stands, "" where that is not known."""

    name: str
    function: Callable[..., Any]
    file: str
    arrays: str

    def takes(self, option: str) -> bool:
        """As a keyword argument."""
        try:
            return option in inspect.signature(self.function).parameters
        except (TypeError, ValueError):  # of functions that are not written in Python
            return False


@dataclass(frozen=True)
class Asking:
    """What is asked of a callable, as the command line has it; None: what is usual."""

    shape: tuple[int, int, int] = USUAL_SHAPE
    a: Format | None = None
    b: Format | None = None
    out: Format | None = None
    scale: ScaleOf | None = None

    def completed(self, spec: Spec) -> Asking:
        """With the formats of another, where none is asked for."""
        return replace(self, a=self.a or spec.a, b=self.b or spec.b, out=self.out or spec.out)


@dataclass(frozen=True)
class Opened:
    """A callable that is ready, and the options that it is called with. asks: see `Listed`; ineffective: options that were
    given and that only a GPU knows, where a CPU computes.
    """

    called: CallableAdapter
    options: Mapping[str, OptionValue]
    made: Ready
    asks: str = ""
    ineffective: tuple[str, ...] = ()


def find_callable(name: str) -> Listed | Own:
    """The callable of that name. Raises UnknownName, ToolMissing, AccprobeError."""
    if name in LISTED:
        return LISTED[name]
    left, colon, right = name.partition(":")
    if not (left and colon and right):
        raise UnknownName(f"there is no callable '{name}', and it is no FILE.py:FUNCTION; {nearest(name, LISTED)}")
    module = _file(Path(left)) if left.endswith(".py") else _module(left, name)
    function: Any = module
    for part in right.split("."):
        if not hasattr(function, part):
            names = [each.partition(":")[2] for each in LISTED if each.startswith(f"{left}:")]
            known = names or [each for each, what in vars(module).items() if inspect.isfunction(what) and each[0] != "_"]
            near = nearest(right, known, prefix=f"{left}:") if known else "it has no function"
            raise UnknownName(f"{left} has no '{right}'; {near}")
        function = getattr(function, part)
    if not callable(function):
        raise AccprobeError(f"{name} is no function: its type is {type(function).__name__}")
    return Own(name, function, getattr(module, "__file__", None) or "", _arrays_of(module))


def open_callable(
    name: str, asking: Asking, options: Options | None = None, device: str | None = None, arrays: str | None = None
) -> Opened:
    """A black box of that callable. Raises AccprobeError where it cannot be had, or what is asked is not for it."""
    found = find_callable(name)
    if isinstance(found, Own):
        return _opened_own(found, asking, dict(options or {}), open_handover(arrays or found.arrays, device))
    make = require(found)
    if arrays not in (None, found.arrays):
        raise AccprobeError(f"{name} takes arrays of {found.arrays} alone, not of {arrays}")
    chosen = with_defaults(options or {}, found.options, name)
    handover = open_handover(found.arrays, device)
    a = asking.a or FORMATS[found.formats[0]]
    spec = Spec(*asking.shape, a, asking.b or a, asking.out or found.result(a), asking.scale)
    found.check(spec, handover)
    if found.a_exponent is not None:
        spec = replace(spec, a_exponent=found.a_exponent(a, spec.k))
    made = make(spec, chosen, handover)
    told = {option: value for option, value in chosen.items() if value is not None}
    called = CallableAdapter(spec, made.function, handover, name, found.by_columns)
    return Opened(called, told, made, found.asks, _ineffective(handover, options or {}, (*FLAGS, *found.on_gpus)))


def _ineffective(handover: Handover, given: Options, on_gpus: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in given if name in on_gpus) if handover.device == "cpu" else ()


def _opened_own(own: Own, asking: Asking, options: dict[str, OptionValue], handover: Handover) -> Opened:
    """Options are its keyword arguments; torch's flags, where it has no such argument."""
    flags = {option: options[option] for option in FLAGS if option in options and not own.takes(option)}
    with_defaults(flags, dict.fromkeys(FLAGS), own.name)
    if flags and handover.arrays != "torch":
        raise AccprobeError(f"option {next(iter(flags))} is torch's, and {own.name} is given arrays of {handover.arrays}")
    keywords = {option: value for option, value in options.items() if option not in flags}
    _check_arguments(own, 2 if asking.scale is None else 4, keywords)

    def function(*given: Any) -> Any:
        return own.function(*given, **keywords)

    made = Ready(under_flags(function, flags) if handover.arrays == "torch" else function)
    a = asking.a or FORMATS["f32"]
    spec = Spec(*asking.shape, a, asking.b or a, asking.out or usual_result(a), asking.scale)
    called = CallableAdapter(spec, made.function, handover, own.name, file=own.file)
    if asking.out is None:
        called.take_result_format()
    return Opened(called, options, made, ineffective=_ineffective(handover, flags, FLAGS))


def _check_arguments(own: Own, arrays: int, keywords: dict[str, OptionValue]) -> None:
    try:
        signature = inspect.signature(own.function)
    except (TypeError, ValueError):
        return
    given = ", ".join(("a", "b", "scale_a", "scale_b")[:arrays])
    parameters = signature.parameters
    free = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for option in keywords:
        if not free and option not in parameters:
            rest = list(parameters)[arrays:]
            raise UnknownName(f"{own.name} has no option '{option}'; {nearest(option, rest) if rest else 'it has none'}")
    try:
        signature.bind(*[None] * arrays, **keywords)
    except TypeError:
        has = f"{own.name.partition(':')[2]}{signature}"
        raise AccprobeError(f"{has} takes other arguments: a product is asked as f({given})") from None


def _file(path: Path) -> Any:
    """The module that a file is; it can import what stands beside it."""
    if not path.is_file():
        raise AccprobeError(f"there is no file {path}")
    whole = path.resolve()
    spec = importlib.util.spec_from_file_location(path.stem, whole)
    assert spec is not None
    loader = spec.loader
    assert loader is not None
    module = importlib.util.module_from_spec(spec)
    _findable(whole.parent)
    with (
        one_sentence(f"{path} cannot be imported:", "cpu", str(whole)),
        redirect_stdout(sys.stderr),
    ):  # as a call of its function
        loader.exec_module(module)
    return module


def _module(package: str, name: str) -> Any:
    _findable(Path.cwd())
    with one_sentence(f"{package} cannot be imported:", "cpu"), redirect_stdout(sys.stderr):
        try:
            return importlib.import_module(package)
        except ModuleNotFoundError as e:
            if e.name is None or not f"{package}.".startswith(f"{e.name}."):
                raise
            raise UnknownName(f"there is no package '{package}' for '{name}'; {nearest(name, LISTED)}") from None


def _findable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _arrays_of(module: Any) -> str:
    """The first library of arrays that a module names; where it names none, torch if that is there, else numpy."""
    named = {getattr(what, "__name__", "").partition(".")[0] for what in vars(module).values() if inspect.ismodule(what)}
    own = getattr(module, "__name__", "").partition(".")[0]
    order = [own, *(each for each in ("torch", "cupy", "jax", "numpy") if each in named)]
    usual = "torch" if importlib.util.find_spec("torch") else "numpy"
    return next((each for each in order if each in ARRAYS), usual)

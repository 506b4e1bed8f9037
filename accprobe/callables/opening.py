"""Open a callable by name: a built-in one, a function in a user's file, or a function of a package."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from accprobe.callables.adapter import CallableAdapter, Multiply, one_sentence
from accprobe.callables.arrays import ARRAYS, ArrayLibrary, open_arrays
from accprobe.callables.builtin import BUILTIN, NEEDS, Builtin, own_result
from accprobe.callables.epilogues import Epilogue
from accprobe.callables.options import FLAGS, Options, OptionValue, under_flags, with_defaults
from accprobe.callables.spec import Spec, usual_result
from accprobe.errors import MOST_KNOWN, AccprobeError, ToolMissing, UnknownName, did_you_mean, nearest, unreadable
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import ScaleOf

DEFAULT_SHAPE = (256, 256, 1024)
# The argument of a user's function that is given a bias [N], in the format of D.
BIAS = "bias"


@dataclass(frozen=True)
class UserFunction:
    """A function of the user or of a package. file: where it is defined, "" if unknown; arrays: the library of its operands."""

    name: str
    function: Callable[..., Any]
    file: str
    arrays: str

    def takes(self, option: str) -> bool:
        return option in self.parameters

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Return the arguments by name, none of a function without a known signature, such as many in C."""
        try:
            return inspect.signature(self.function).parameters
        except (TypeError, ValueError):
            return {}


@dataclass(frozen=True)
class ProductRequest:
    """The shape, formats and scales that the command line gives; None: the callable's default.

    reduced: the dimension of x [rows, K], or [K, rows] if "first", that a reduction adds, with the shape (1, rows, K); None for
    products. "ranks": the rows are the elements of a collective, K and M are the number of ranks.
    """

    shape: tuple[int, int, int] = DEFAULT_SHAPE
    a: Format | None = None
    b: Format | None = None
    out: Format | None = None
    scale: ScaleOf | None = None
    reduced: Literal["last", "first", "all", "ranks"] | None = None

    def completed(self, spec: Spec) -> ProductRequest:
        """Return the request with missing formats taken from a spec."""
        return replace(self, a=self.a or spec.a, b=self.b or spec.b, out=self.out or spec.out)


@dataclass(frozen=True)
class Opened:
    """An opened callable and its options. probed_part: see `Builtin`; gpu_options: given options that have no effect on a CPU.

    remarks: for the row of the report.
    """

    adapter: CallableAdapter
    options: Options
    probed_part: str = ""
    gpu_options: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def ineffective(self) -> tuple[str, ...]:
        """Return the given options that have no effect on this device."""
        return self.gpu_options if self.adapter.library.device == "cpu" else ()


def find_callable(name: str, known: Collection[str] = BUILTIN) -> Builtin | UserFunction:
    """Return the callable of that name. known: names to suggest. Raises UnknownName, ToolMissing, AccprobeError."""
    if name in BUILTIN:
        return BUILTIN[name]
    left, colon, right = name.partition(":")
    if name.endswith(".py"):
        raise UnknownName(f"{name} names no function: give {name}:FUNCTION")
    if not (left and colon and right):
        raise UnknownName(f"there is no callable '{name}', and it is not FILE.py:FUNCTION; {_advice(name, known)}")
    module = _file(Path(left)) if left.endswith(".py") else _module(left, name, known)
    function: Any = module
    for part in right.split("."):
        if not hasattr(function, part):
            names = [each.partition(":")[2] for each in known if each.startswith(f"{left}:")] or public_functions(module)
            hint = (
                f"for your own function, give FILE.py:{right}" if len(names) > MOST_KNOWN and not left.endswith(".py") else ""
            )
            near = did_you_mean(right, names, f"{left}:") or hint or nearest(right, names, f"{left}:")
            near = near if names else "it has no function"
            raise UnknownName(f"{left} has no '{right}'; {near}")
        function = getattr(function, part)
    if not callable(function):
        raise AccprobeError(f"{name} is not a function (got {type(function).__name__})")
    return UserFunction(name, function, getattr(module, "__file__", None) or "", _arrays_of(module))


def public_functions(module: Any) -> list[str]:
    """Return the names of the public functions of a module, also of those in C and of numpy's ufuncs."""
    return [name for name, value in vars(module).items() if name[0] != "_" and callable(value) and not inspect.isclass(value)]


def open_callable(
    name: str, request: ProductRequest, options: Options | None = None, device: str | None = None, arrays: str | None = None
) -> Opened:
    """Open a callable as a black box. Raises AccprobeError if it is not available or does not support the request."""
    if request.reduced:
        from accprobe.callables.reductions import open_reduction

        return open_reduction(name, request, dict(options or {}), device, arrays)
    found = find_callable(name)
    if isinstance(found, UserFunction):
        return _open_user_function(found, request, dict(options or {}), open_arrays(arrays or found.arrays, device))
    if reason := found.explain_unavailable():
        raise ToolMissing(f"{name} is not available: {reason}")
    if arrays not in (None, found.arrays):
        raise AccprobeError(f"{name} takes arrays of {found.arrays} only, not of {arrays}")
    chosen = with_defaults(options or {}, found.options, name)
    library = open_arrays(found.arrays, device)
    a = request.a or FORMATS[found.formats[0]]
    spec = Spec(*request.shape, a, request.b or a, request.out or found.result(a), request.scale)
    found.check(spec, library)
    if found.a_exponent is not None:
        spec = replace(spec, a_exponent=found.a_exponent(a, spec.k))
    function = found.make(spec, chosen, library)
    shown = {option: value for option, value in chosen.items() if value is not None}
    adapter = CallableAdapter(spec, function, library, name, found.by_columns)
    gpu_options = tuple(name for name in options or () if name in (*FLAGS, *found.gpu_options))
    return Opened(adapter, shown, found.probed_part, gpu_options)


def _open_user_function(
    own: UserFunction, request: ProductRequest, options: dict[str, OptionValue], library: ArrayLibrary
) -> Opened:
    """Pass options as keyword arguments, or set torch's flags if the function has no such argument."""
    flags = {option: options[option] for option in FLAGS if option in options and not own.takes(option)}
    with_defaults(flags, dict.fromkeys(FLAGS), own.name)
    if flags and library.name != "torch":
        raise AccprobeError(f"option {next(iter(flags))} is torch's, and {own.name} takes arrays of {library.name}")
    function: Multiply = partial(own.function, **{name: value for name, value in options.items() if name not in flags})
    a = request.a or FORMATS["f32"]
    spec = Spec(*request.shape, a, request.b or a, request.out or usual_result(a), request.scale)
    bias = own.parameters.get(BIAS)
    has_bias = library.name == "torch" and bias is not None and bias.default is inspect.Parameter.empty
    remarks = ("bias left at its default",) if bias is not None and not has_bias and BIAS not in options else ()
    multiply = under_flags(function, flags) if library.name == "torch" else function
    if has_bias and request.scale is None:

        def call(a: Any, b: Any, bias: Any, alpha: float, beta: float) -> Any:
            return function(a, b, bias=bias)

        spec = replace(spec, out=request.out or own_result(a))
        multiply = Epilogue(call, spec, library, (spec.n,), flags)
    adapter = CallableAdapter(spec, multiply, library, own.name, file=own.file)
    if request.out is None and not has_bias:
        adapter.take_result_format()
    return Opened(adapter, options, gpu_options=tuple(flags), remarks=remarks)


def _file(path: Path) -> Any:
    """Import a file. It can import modules of its own folder."""
    if not path.is_file():
        raise AccprobeError(unreadable(path, FileNotFoundError()))
    whole = path.resolve()
    spec = importlib.util.spec_from_file_location(path.stem, whole)
    assert spec is not None
    loader = spec.loader
    assert loader is not None
    module = importlib.util.module_from_spec(spec)
    _add_to_path(whole.parent)
    with one_sentence(f"{path} cannot be imported:", "cpu", str(whole)):
        loader.exec_module(module)
    return module


def _module(package: str, name: str, known: Collection[str]) -> Any:
    _add_to_path(Path.cwd())
    with one_sentence(f"{package} cannot be imported:", "cpu"):
        try:
            return importlib.import_module(package)
        except ModuleNotFoundError as e:
            if e.name is None or not f"{package}.".startswith(f"{e.name}."):
                raise
            if package.partition(".")[0] in NEEDS:
                needed, command = NEEDS[package.partition(".")[0]]
                raise ToolMissing(f"{name} is not available: {needed} is not installed: {command}") from None
            raise UnknownName(f"there is no package '{package}' for '{name}'; {_advice(name, known)}") from None


def _advice(name: str, known: Collection[str]) -> str:
    return nearest(name, known) if known else "give one such as numpy:exp"


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _arrays_of(module: Any) -> str:
    """Return the library that a module is or else imports, torch before jax before numpy; if none, torch or else numpy."""
    imported = {getattr(value, "__name__", "").partition(".")[0] for value in vars(module).values() if inspect.ismodule(value)}
    own = getattr(module, "__name__", "").partition(".")[0]
    order = [own, *(each for each in ("torch", "jax", "numpy") if each in imported)]
    usual = "torch" if importlib.util.find_spec("torch") else "numpy"
    return next((each for each in order if each in ARRAYS), usual)

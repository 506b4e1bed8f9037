"""Reads dumps of other tools as traces: logs of torchtitan and of torch's DebugMode, files of SGLang's dumper.

Formats as these versions write them:
- torchtitan 259b442, agent_tooling/numerics_debugging/activation_tracer.py: `dump_captures_to_file`;
- torch 2.13.0, torch/utils/_debug_mode: `DebugMode.debug_string` with `log_tensor_hashes` (a prototype; 2.10 writes the same);
- SGLang 00d3554, python/sglang/srt/debug_utils/dumper.py: `_dump_single`.

A dump is data of another machine. Its sizes are checked, and nothing in it is executed: of a `.pt` file only tensors are read.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from accprobe.errors import RecordingError, ToolMissing, plain_line, unreadable
from accprobe.trace.mapping import Mapped
from accprobe.trace.records import (
    MOST_LINE,
    MOST_OPERATIONS,
    MOST_VALUES,
    OPERATION_FILE,
    RecordedTrace,
    TensorValue,
    TracedOperation,
    read_trace,
)

MOST_FILE = 1 << 34
"""Bytes of a file of SGLang's dumper."""

MOST_EXPANDED = 1 << 28
"""Bytes up to which a tensor of a small file is expanded."""

TITAN_START = "Total captured activations:"

TITAN_LACKS = "torchtitan logs L1 norms of 7 digits and no casts or views: equal norms do not mean equal bits"

_TITAN_KEY = re.compile(r"\[(?P<module>.*)/op_\d+_(?P<name>[^\]/]+)\]")
_TITAN_FIELD = re.compile(r"  (Shape|Output hash|Input hashes|Phase): (.+)")
_TITAN_SHAPE = re.compile(r"torch\.Size\(\[([\d, ]*)\]\), Dtype: torch\.(\w+)")

_CALL = re.compile(r"(?P<name>[\w.]+::[\w.]+)\((?P<arguments>.*)\)")
_TENSOR = re.compile(r"(?:(\w+)=)?\b(?:dt|t)(?:\$\d+)?: (\w+)\[([\d, ]*)\]")
"""A tensor among arguments: its name, type and sizes."""

_KERNEL = re.compile(r"\[triton\] ([\w.]+)\((.*)\)")
_KERNEL_HASHES = re.compile(r"# (pre|post)-kernel hashes: \{(.*)\}")
_LEAF = re.compile(r"'[^']*'(?!:)|(?<![\w.'])(?:-?\d[\d.e+-]*|nan|-?inf)")
"""A hash in the log of a call: a number, or a text that is not the key of an argument."""

_HOOK = "non_intrusive__"
"""Starts the names that SGLang's dumper gives the values of modules: non_intrusive__model.layers.0.mlp.output."""

_NO_MODULE = "<none>"

_UNKNOWN = ("", ())
"""Type and shape of a tensor that a dump has as a hash only."""


def read_any(path: Path, mapped: Mapped | None = None) -> RecordedTrace:
    """Read a trace of accprobe or a dump of another tool. mapped: part of each tensor that is compared, of dumps with tensors.

    Raises RecordingError, ToolMissing.
    """
    try:
        if path.is_dir() and not (path / OPERATION_FILE).is_file() and next(path.glob("*___*.pt"), None):
            return _read_sglang(path, mapped)
        return _read_log(path) if path.is_file() else read_trace(path)
    except OSError as e:
        raise RecordingError(unreadable(path, e)) from None


@dataclass
class _Builder:
    """Collects operations. Values are identified by their hashes, as dumps have no addresses."""

    path: Path
    trace: RecordedTrace
    _ids: dict[str, int] = field(default_factory=dict)

    def value(self, hash_: str, dtype: str = "", shape: tuple[int, ...] = (), parts: tuple[str, ...] = ()) -> TensorValue:
        return TensorValue(self._ids.setdefault(hash_, len(self._ids)), hash_, shape, (), dtype, parts)

    def add(self, name: str, module: str, phase: str, inputs: list[TensorValue], outputs: list[TensorValue]) -> None:
        number = len(self.trace.operations)
        if number >= MOST_OPERATIONS or len(inputs) + len(outputs) > MOST_VALUES:
            raise RecordingError(
                f"{self.path} has more than {MOST_OPERATIONS:,} operations, or one of more than {MOST_VALUES:,} tensors"
            )
        self.trace.operations.append(TracedOperation(number, name, module, phase, tuple(inputs), tuple(outputs)))


def _read_log(path: Path) -> RecordedTrace:
    lines = _lines(path)
    first = next(lines, "")
    if first.startswith(TITAN_START):
        return _titan(path, lines)
    if first.startswith(("<!DOCTYPE", "<html")):
        raise RecordingError(f"{path} is an HTML page; give the two rank_N_activations.log that compare_numerics read")
    return _DebugModeLog(path).read(chain([first], lines))


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        while line := file.readline(MOST_LINE + 1):
            if len(line) > MOST_LINE:
                raise RecordingError(f"{path} has a line of more than {MOST_LINE:,} bytes: it is not a log of operations")
            yield plain_line(line.decode("utf-8", "replace").rstrip())


def _titan(path: Path, lines: Iterator[str]) -> RecordedTrace:
    blocks: list[tuple[str, dict[str, str]]] = []
    for line in lines:
        if line.startswith("["):
            blocks.append((line, {}))
        elif blocks and (field := _TITAN_FIELD.match(line)):
            blocks[-1][1][field[1]] = field[2]
    builder = _Builder(path, RecordedTrace([], source="torchtitan", lacks=TITAN_LACKS))
    for heading, fields in blocks:
        key = _TITAN_KEY.fullmatch(heading)
        if key is None:
            raise RecordingError(f"{path}: '{heading:.60}' is not a heading of torchtitan, such as [layers.0.wq/op_0_mm]")
        module = "" if key["module"] == _NO_MODULE else key["module"]
        inputs, hashes = (list(filter(None, fields.get(name, "").split(", "))) for name in ("Input hashes", "Output hash"))
        found = _TITAN_SHAPE.search(fields.get("Shape", ""))
        shapes = [(found[2], _shape(path, found[1]))] if found else []  # of the first result alone
        shapes += [_UNKNOWN] * (len(hashes) - len(shapes))
        outputs = [builder.value(x, *shape) for x, shape in zip(hashes, shapes, strict=False)]
        builder.add(key["name"], module, fields.get("Phase", "forward"), list(map(builder.value, inputs)), outputs)
    return builder.trace


def _shape(path: Path, text: str) -> tuple[int, ...]:
    sizes = tuple(int(x) for x in text.split(",") if x.strip() and len(x) < 20)
    if math.prod(sizes) > 1 << 48 or len(sizes) > 64:
        raise RecordingError(f"{path} has a tensor of shape [{text:.60}], which is too large")
    return sizes


class _DebugModeLog:
    """Reads the lines of a log. modules: the running ones, each with its indentation. kinds: the kinds of hashes found."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._builder = _Builder(path, RecordedTrace([]))
        self._modules: list[tuple[int, str]] = []
        self._kinds: set[str] = set()
        self._kernel: re.Match[str] | None = None
        self._before: dict[str, str] = {}

    def read(self, lines: Iterable[str]) -> RecordedTrace:
        for line in lines:
            text = line.lstrip()
            while self._modules and len(line) - len(text) <= self._modules[-1][0] and not text.startswith("#"):
                self._modules.pop()
            if text.startswith("[nn.Mod] "):
                self._modules.append((len(line) - len(text), text.removeprefix("[nn.Mod] ").partition(".")[2]))
            elif kernel := _KERNEL.match(text):
                self._kernel, self._before = kernel, {}
            elif hashes := _KERNEL_HASHES.fullmatch(text):
                self._add_kernel(hashes[1], dict(each.split(": ", 1) for each in hashes[2].split(", ") if ": " in each))
            else:
                self._add_call(text)
        return self._finished()

    def _add(self, name: str, inputs: list[TensorValue], outputs: list[TensorValue]) -> None:
        if outputs:
            self._builder.add(name, self._modules[-1][1] if self._modules else "", "forward", inputs, outputs)

    def _add_call(self, text: str) -> None:
        """Add "aten::mm(t: f32[2, 4], …)  ->  t: f32[2, 4] # {'input_hash': (('8f…', '4c…'), {}), 'hash': '9a…'}"."""
        call, _, log = text.rpartition("  # {")
        head, _, results = call.partition("  ->  ")
        if found := _CALL.fullmatch(head):
            before, _, after = log.rpartition("'hash': ")
            sides = (found["arguments"], before.removeprefix("'input_hash': ")), (results, after)
            self._add(found["name"].replace("::", "."), *(self._values(*side) for side in sides))

    def _add_kernel(self, when: str, hashes: dict[str, str]) -> None:
        """Add one of Inductor's Triton kernels. Its arguments are named in_ptr0, out_ptr0, in_out_ptr0, …"""
        if when == "post" and self._kernel is not None:
            types = {name: (dtype, _shape(self._path, sizes)) for name, dtype, sizes in _TENSOR.findall(self._kernel[2])}
            sides = [
                [self._value(x, *types.get(name, _UNKNOWN)) for name, x in side.items() if word in name]
                for word, side in (("in_", self._before), ("out", hashes))
            ]
            self._add(f"triton.{self._kernel[1]}", *sides)
            self._kernel = None
        self._before = hashes

    def _values(self, text: str, log: str) -> list[TensorValue]:
        """Return the tensors of arguments or results, from their types in a call and their hashes in its log."""
        types = [(dtype, _shape(self._path, sizes)) for _, dtype, sizes in _TENSOR.findall(text)]
        hashes = _LEAF.findall(log)
        if types and len(hashes) > len(types) and len(hashes) % len(types) == 0:  # several hashes of each tensor
            each = len(hashes) // len(types)
            hashes = [" ".join(hashes[i : i + each]) for i in range(0, len(hashes), each)]
        if len(types) != len(hashes):
            types = [_UNKNOWN] * len(hashes)
        return [self._value(x, *each) for x, each in zip(hashes, types, strict=True)]

    def _value(self, leaf: str, dtype: str, shape: tuple[int, ...]) -> TensorValue:
        self._kinds.add("hashes" if leaf.startswith("'") else "XOR sums" if leaf.isdigit() else "norms")
        return self._builder.value(f"{dtype} {leaf}", dtype, shape)

    def _finished(self) -> RecordedTrace:
        trace, kinds = self._builder.trace, " and ".join(sorted(self._kinds))
        if not trace.operations:
            raise RecordingError(
                f"{self._path} is neither a trace nor a log of DebugMode with hashes: write debug_string() of a run "
                "under DebugMode.log_tensor_hashes(hash_fn=accprobe.trace.hash_of, hash_inputs=True)"
            )
        trace.source = f"DebugMode with {kinds}"
        if kinds != "hashes":
            trace.lacks = f"DebugMode logged {kinds}: equal ones do not mean equal bits"
        return trace


def _read_sglang(folder: Path, mapped: Mapped | None) -> RecordedTrace:
    """Read each `step=0___rank=0___dump_index=1___name=….pt` as an operation without inputs, in the order of the dump."""
    from accprobe.trace.hashing import hash_of

    trace = RecordedTrace([], str(mapped or ""), source="SGLang", lacks="SGLang dumps chosen values without the operands")
    builder = _Builder(folder, trace)
    found: list[tuple[int, int, dict[str, str], Path]] = []
    for path in folder.glob("*.pt"):
        tags = dict(each.partition("=")[::2] for each in path.stem.split("___"))
        if not {"name", "step"} <= set(tags) or not all(tags.get(key, "").isdigit() for key in ("rank", "dump_index")):
            raise RecordingError(
                f"{folder}: {path.name:.80} is not a name of SGLang's dumper: step=…___rank=…___dump_index=…___name=….pt"
            )
        found.append((int(tags["dump_index"]), int(tags["rank"]), tags, path))
    several = len({rank for _, rank, _, _ in found}) > 1
    for _, rank, tags, path in sorted(found, key=lambda each: each[:2]):
        tensor = _tensor_of(path)
        if tensor is not None:
            parts = () if mapped is None else tuple(map(hash_of, mapped.parts(tensor)))
            dtype = str(tensor.dtype).removeprefix("torch.")
            value = builder.value(hash_of(tensor), dtype, tuple(tensor.shape), parts)
            module = f"layers.{tags['layer_id']}" if "layer_id" in tags else ""
            phase = f"step {tags['step']}" + f", rank {rank}" * several
            builder.add(tags["name"].removeprefix(_HOOK), module, phase, [], [value])
    return trace


def _tensor_of(path: Path) -> Any:
    """Return the tensor of a file that torch.save wrote; None if it has no dense one. Raises RecordingError, ToolMissing."""
    try:
        import torch
    except ImportError as e:
        raise ToolMissing("torch is not installed: dumps of SGLang are files of torch; pip install torch") from e
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(each.file_size for each in archive.infolist()) > min(MOST_FILE, 2 * path.stat().st_size):
                raise RecordingError(f"{path} is compressed or has more than {MOST_FILE:,} bytes, which accprobe does not read")
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RecordingError):
        raise
    except Exception as e:  # torch raises its own errors, and errors of pickle and of zip files
        raise RecordingError(f"{path} holds Python objects, or is no file of torch.save: accprobe reads only tensors") from e
    value = loaded.get("value") if isinstance(loaded, dict) else loaded
    if not isinstance(value, torch.Tensor) or value.is_meta or value.layout != torch.strided:
        return None
    if value.numel() * value.element_size() > max(MOST_EXPANDED, 2 * path.stat().st_size):
        raise RecordingError(f"{path} has a tensor of shape {tuple(value.shape)}, which is larger than its file")
    return value

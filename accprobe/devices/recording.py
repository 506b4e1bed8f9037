"""A recording: every exchange of a run with its device, in one compact file that `accprobe.devices.replay` plays back.

A question is known by a digest of the instruction, the place in the tile and the operands: the run asks the same again. Of
the answers that an experiment reads, all bits are kept. Answers that a model was held against are kept as a digest of what
the model expected, and the answers that differed from it: whoever expects the same gets them back, bit for bit.

The file is a zip archive of numpy arrays, as `numpy.load` reads it.
"""

from __future__ import annotations

import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from accprobe.build import atomic
from accprobe.devices.protocol import Controlled, Device, DeviceKind, Passing
from accprobe.errors import RecordingError
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request
from accprobe.sass.lowering import Lowering

VERSION = 1
"""Of the file's layout."""

MOST_UNPACKED = 1 << 26
"""Of all members, unpacked: eighty times what every instruction of an H200 comes to."""

Exchanges = dict[bytes, list[bytes]]
"""Question -> what came back each time that it was asked, up to the last time that it changed (see `Answer`)."""

_IN_FULL, _BY_DIFFERENCE = b"\0", b"\1"


def question(inst: Instruction, request: Request, placement: int, setting: str = "") -> bytes:
    """The digest by which a question is known. setting: of the control register, where it is not the usual one."""
    digest = blake2b(f"{inst.name} {placement} {setting}".encode(), digest_size=8)
    for column in request.columns:
        digest.update(np.ascontiguousarray(column).data)
    return digest.digest()


def in_full(d: Bits) -> bytes:
    """An answer with all its bits."""
    return _IN_FULL + d.tobytes()


def by_difference(d: Bits, expected: Bits) -> bytes:
    """An answer as the digest of what was expected, then the rows that differ, and what they were."""
    rows = np.flatnonzero(d != expected).astype(np.uint32)
    return _BY_DIFFERENCE + _digest(expected) + len(rows).to_bytes(4, "little") + rows.tobytes() + d[rows].tobytes()


def is_in_full(kept: bytes) -> bool:
    return kept[:1] == _IN_FULL


def read_in_full(kept: bytes, dtype: np.dtype[np.unsignedinteger]) -> Bits:
    """What `in_full` wrote."""
    return np.frombuffer(kept, dtype, offset=1).copy()


def read_by_difference(kept: bytes, expected: Bits) -> Bits | None:
    """What `by_difference` wrote; None where something else was expected then."""
    if kept[1:17] != _digest(expected):
        return None
    count = int.from_bytes(kept[17:21], "little")
    d = expected.copy()
    d[np.frombuffer(kept, np.uint32, count, 21)] = np.frombuffer(kept, d.dtype, count, 21 + 4 * count)
    return d


def _digest(expected: Bits) -> bytes:
    return blake2b(np.ascontiguousarray(expected).data, digest_size=16).digest()


@dataclass
class Facts:
    """What a device says of one instruction. leader: the one that is computed by the same function and was asked instead.

    settings: those of `Controlled`.
    """

    name: str
    why_not: str | None = None
    placements: int = 1
    leader: str | None = None
    lowering: Lowering | None = None
    settings: tuple[str, ...] = ()
    asked: bool = False
    """Whether everything about it was asked; not so where the run was cut short."""


@dataclass
class Recording:
    """A device as a run met it. asked: the options of the run, as a command line has them."""

    kind: DeviceKind
    name: str
    architecture: str
    pure: bool
    facts: dict[str, int | float | str]
    environment: dict[str, str]
    asked: str
    accprobe: str
    instructions: dict[str, Facts] = field(default_factory=dict)
    exchanges: Exchanges = field(default_factory=dict)

    @classmethod
    def of(cls, device: Device, asked: str) -> Recording:
        """An empty recording of that device."""
        from accprobe import __version__

        facts = {key: fact for key, fact in device.describe().items() if isinstance(fact, int | float | str)}
        environment = device.environment()
        return cls(device.kind, device.name, device.architecture, device.pure, facts, environment, asked, __version__)

    def announce(self, device: Device, wanted: Iterable[Instruction], leaders: Mapping[str, str]) -> None:
        """Note what the run is about to measure. leaders: of each instruction, the one that is asked in its stead."""
        for inst in wanted:
            if reason := device.why_not(inst):
                self.instructions[inst.name] = Facts(inst.name, reason)
            else:
                settings = device.settings(inst) if isinstance(device, Controlled) else ()
                facts = Facts(inst.name, None, device.placements(inst), leaders[inst.name], settings=settings)
                self.instructions[inst.name] = facts

    def add(self, lowerings: Mapping[str, Lowering | None], exchanges: Exchanges) -> None:
        """Note that everything about some instructions was asked, and what they became."""
        for name, lowering in lowerings.items():
            self.instructions[name].lowering, self.instructions[name].asked = lowering, True
        self.exchanges |= exchanges

    def save(self, path: Path) -> None:
        """Write the file, so that a reader sees all of it or none. Raises OSError."""
        atomic.save(path, _packed(self._arrays()))

    def _arrays(self) -> dict[str, np.ndarray]:
        """Questions in order, and each different answer once."""
        questions = sorted(self.exchanges)
        answers = {kept: None for key in questions for kept in self.exchanges[key]}
        numbers = {kept: i for i, kept in enumerate(answers)}
        header = {key: value for key, value in asdict(self).items() if key not in ("exchanges", "instructions")} | {
            "accprobe recording": VERSION,
            "instructions": [asdict(facts) for facts in self.instructions.values()],
        }
        return {
            "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
            "questions": np.frombuffer(b"".join(questions), np.uint8).reshape(-1, 8),
            "times_asked": np.array([len(self.exchanges[key]) for key in questions], np.uint8),
            "answer_of": np.array([numbers[kept] for key in questions for kept in self.exchanges[key]], np.uint32),
            "answer_sizes": np.array([len(kept) for kept in answers], np.uint32),
            "answers": np.frombuffer(b"".join(answers), np.uint8),
        }

    @classmethod
    def load(cls, path: Path) -> Recording:
        """The recording in a file. Raises RecordingError, before more than MOST_UNPACKED are unpacked."""
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise RecordingError(f"{path} is no regular file; what a pipe has can be read once it is written to one")
        try:
            return cls._read(path)
        except OSError as e:
            raise RecordingError(f"{path} cannot be read: {e.strerror}") from None
        except _DAMAGED:
            raise RecordingError(
                f"{path} is damaged, or no recording that `accprobe run --record` wrote; record again"
            ) from None

    @classmethod
    def _read(cls, path: Path) -> Recording:
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                why = "it is cut short" if file.read(2) == b"PK" else "it is another kind of file"
            raise RecordingError(f"{path} is no recording that `accprobe run --record` wrote, or not all: {why}")
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if "header" not in members:
                raise RecordingError(f"{path} is no recording that `accprobe run --record` wrote, but another archive")
            size = sum(members[name].file_size for name in _DTYPES if name in members)
            if size > MOST_UNPACKED:
                most = f"a recording has {MOST_UNPACKED >> 20} MiB at most"
                raise RecordingError(f"{path} would unpack to {size >> 20:,} MiB, and {most}; record again")
            header = json.loads(_unpacked(archive, members["header"], "header").tobytes())
            version = header.pop("accprobe recording")
            if version != VERSION:
                raise RecordingError(f"{path}: this accprobe reads recordings of version {VERSION}, the file has {version!r}")
            arrays = {name: _unpacked(archive, members[name], name) for name in _DTYPES}
        facts = [_facts(row) for row in header.pop("instructions")]
        return cls(**header, instructions={f.name: f for f in facts}, exchanges=_exchanges(arrays))


_DTYPES = {
    "header": np.uint8,
    "questions": np.uint8,
    "times_asked": np.uint8,
    "answer_of": np.uint32,
    "answer_sizes": np.uint32,
    "answers": np.uint8,
}

_DAMAGED = (
    *(KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError, EOFError, StopIteration, struct.error),
    *(RuntimeError, MemoryError, zipfile.BadZipFile, lzma.LZMAError, zlib.error),
)
"""What zipfile, json and numpy raise for bytes that are no recording; RuntimeError: encrypted, or nested too deeply."""

_PIECE = 1 << 12
"""Bytes of a member that are read at once: zipfile decompresses as many of the file, whatever they become."""


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> np.ndarray:
    """A member as its array; zipfile unpacks no more of it than the archive declares. Raises one of _DAMAGED."""
    with archive.open(info) as file:
        raw = b"".join(iter(lambda: file.read(_PIECE), b""))
    npy = io.BytesIO(raw)
    np.lib.format.read_magic(npy)
    shape, _, dtype = np.lib.format.read_array_header_1_0(npy)
    if dtype != _DTYPES[name]:
        raise ValueError(f"{name} has another type")
    return np.frombuffer(raw, dtype, offset=npy.tell()).reshape(shape)


def _facts(row: dict[str, Any]) -> Facts:
    told = row.pop("lowering")
    if told is not None:
        sequence = tuple((str(opcode), int(count)) for opcode, count in told["sequence"])
        told = Lowering(tuple(told["matrix"]), sequence, told["source"], told["cubin_sha256"])
    return Facts(**row | {"settings": tuple(row.get("settings", ()))}, lowering=told)


def _exchanges(arrays: dict[str, np.ndarray]) -> Exchanges:
    ends = np.cumsum(arrays["answer_sizes"], dtype=np.int64).tolist()
    pool = arrays["answers"].tobytes()
    if (ends or [0])[-1] != len(pool):
        raise ValueError("answers are missing")
    answers = [pool[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    kept = iter([answers[i] for i in arrays["answer_of"].tolist()])
    questions, times = arrays["questions"], arrays["times_asked"].tolist()
    return {key.tobytes(): [next(kept) for _ in range(n)] for key, n in zip(questions, times, strict=True)}


def _packed(arrays: dict[str, np.ndarray]) -> bytes:
    """An .npz file, smaller than numpy's own, and the same bytes for the same arrays."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue(), zipfile.ZIP_LZMA)
    return packed.getvalue()


class RecordedDevice(Passing):
    """Passes everything on to `device`; `take` gives what was exchanged since the last time."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._exchanges: Exchanges = {}
        self._asked: dict[bytes, int] = {}

    def take(self) -> Exchanges:
        taken, self._exchanges, self._asked = self._exchanges, {}, {}
        return taken

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        d = self._device.dot(inst, request, placement)
        self._note(question(inst, request, placement), in_full(d))
        return d

    def dot_expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0) -> Bits:
        d = self._device.dot(inst, request, placement)
        self._note(question(inst, request, placement), by_difference(d, expected()))
        return d

    def dot_under(self, setting: str, inst: Instruction, request: Request) -> Bits:
        d = super().dot_under(setting, inst, request)
        self._note(question(inst, request, 0, setting), in_full(d))
        return d

    def _note(self, key: bytes, kept: bytes) -> None:
        """Keep an answer, unless it is the one before again."""
        answers = self._exchanges.setdefault(key, [])
        times = self._asked[key] = self._asked.get(key, 0) + 1
        if not answers or answers[-1] != kept:
            answers += [answers[-1]] * (times - 1 - len(answers)) if answers else []
            answers.append(kept)

"""Recordings: every exchange of a run with its device in one compact file, and the device that replays it.

A digest of the instruction, the control register, the place in the tile and the operands identifies a query. The same run sends
the same queries again. Results that an experiment reads are kept in full. Results that were compared with a model are kept as a
digest of the predictions and the differing results. A caller that expects the same predictions gets the results. The file is a
zip archive of numpy arrays, as `numpy.load` reads it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from accprobe.build import atomic
from accprobe.build.lowerings import Lowering
from accprobe.errors import NotRecorded, RecordingError, unreadable
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, alike_but_n, parse
from accprobe.operands.protocol import Device, DeviceKind
from accprobe.operands.request import Request

VERSION = 2  # Version of the file's layout.
MOST_UNPACKED = 1 << 26  # Bytes of all members, unpacked, at most: eighty times what every instruction of an H200 needs.

# Query -> its results each time that it was sent, up to the last time that they changed (see `RecordedDevice._note`).
Exchanges = dict[bytes, list[bytes]]

_IN_FULL, _BY_DIFFERENCE = b"\0", b"\1"


def query_key(inst: Instruction, request: Request, placement: int, setting: str = "") -> bytes:
    """Return the digest of a query. setting: of the control register, if it is not the usual one."""
    digest = blake2b(f"{inst.name} {placement} {setting}".encode(), digest_size=8)
    for column in request.columns:
        digest.update(np.ascontiguousarray(column).data)
    return digest.digest()


def kept_results(d: Bits, expected: Bits | None = None) -> bytes:
    """Return results in full; of those that a model predicts, the digest of the predictions and what differs from them."""
    if expected is None:
        return _IN_FULL + d.tobytes()
    rows = np.flatnonzero(d != expected).astype(np.uint32)
    return _BY_DIFFERENCE + _digest(expected) + len(rows).to_bytes(4, "little") + rows.tobytes() + d[rows].tobytes()


def read_results(kept: bytes, dtype: np.dtype[np.unsignedinteger], expected: Bits | None) -> Bits | None:
    """Return the results that `kept_results` wrote; None if they depend on other expected ones."""
    if kept[:1] == _IN_FULL:
        return np.frombuffer(kept, dtype, offset=1).copy()
    if expected is None or kept[1:17] != _digest(expected):
        return None
    count = int.from_bytes(kept[17:21], "little")
    d = expected.copy()
    d[np.frombuffer(kept, np.uint32, count, 21)] = np.frombuffer(kept, dtype, count, 21 + 4 * count)
    return d


def _digest(expected: Bits) -> bytes:
    return blake2b(np.ascontiguousarray(expected).data, digest_size=16).digest()


@dataclass
class Facts:
    """Facts of a device about one instruction. leader: the instruction that was measured instead, because the
    device computes both with the same function. settings: of a control register. complete: all its queries were recorded;
    false if the run was interrupted.
    """

    name: str
    why_not: str | None = None
    placements: int = 1
    leader: str | None = None
    lowering: Lowering | None = None
    settings: tuple[str, ...] = ()
    complete: bool = False


@dataclass
class Recording:
    """A device during a run. options: of the run, as on the command line. accprobe: the version."""

    kind: DeviceKind
    name: str
    architecture: str
    pure: bool
    facts: dict[str, int | float | str]
    environment: dict[str, str]
    options: str
    accprobe: str
    instructions: dict[str, Facts] = field(default_factory=dict)
    exchanges: Exchanges = field(default_factory=dict)

    @classmethod
    def of(cls, device: Device, options: str) -> Recording:
        """Return an empty recording of that device."""
        from accprobe import __version__

        facts = {key: fact for key, fact in device.describe().items() if isinstance(fact, int | float | str)}
        environment = device.environment()
        return cls(device.kind, device.name, device.architecture, device.pure, facts, environment, options, __version__)

    def announce(self, device: Device, wanted: Iterable[Instruction], leaders: Mapping[str, str]) -> None:
        """Note the instructions that the run is about to measure. leaders: by instruction, the one that is measured for it."""
        for inst in wanted:
            if reason := device.explain_unavailable(inst):
                self.instructions[inst.name] = Facts(inst.name, reason)
            else:
                placements, settings = device.placements(inst), device.settings(inst)
                self.instructions[inst.name] = Facts(inst.name, None, placements, leaders[inst.name], settings=settings)

    def add(self, lowerings: Mapping[str, Lowering | None], exchanges: Exchanges) -> None:
        """Add all exchanges about some instructions, and their lowerings."""
        for name, lowering in lowerings.items():
            self.instructions[name].lowering, self.instructions[name].complete = lowering, True
        self.exchanges |= exchanges

    def save(self, path: Path) -> None:
        """Write the file atomically. Raises OSError."""
        atomic.save(path, _packed(self._arrays()))

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the queries in order, and each different result once."""
        queries = sorted(self.exchanges)
        results = {kept: None for key in queries for kept in self.exchanges[key]}
        numbers = {kept: i for i, kept in enumerate(results)}
        header = {key: value for key, value in asdict(self).items() if key not in ("exchanges", "instructions")} | {
            "accprobe recording": VERSION,
            "instructions": [asdict(facts) for facts in self.instructions.values()],
        }
        return {
            "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
            "queries": np.frombuffer(b"".join(queries), np.uint8).reshape(-1, 8),
            "times": np.array([len(self.exchanges[key]) for key in queries], np.uint8),
            "result_of": np.array([numbers[kept] for key in queries for kept in self.exchanges[key]], np.uint32),
            "result_sizes": np.array([len(kept) for kept in results], np.uint32),
            "results": np.frombuffer(b"".join(results), np.uint8),
        }

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Return the recording in a file. Raises RecordingError, before more than MOST_UNPACKED is unpacked."""
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise RecordingError(f"{path} is not a regular file; write the pipe's data to a file first")
        try:
            return cls._read(path)
        except OSError as e:
            raise RecordingError(unreadable(path, e)) from None
        except RecordingError:
            raise
        except Exception:  # whatever zipfile, json and numpy raise for bytes that are no recording
            damaged = "is truncated or damaged, or not a recording of `accprobe run --record`; record again"
            raise RecordingError(f"{path} {damaged}") from None

    @classmethod
    def _read(cls, path: Path) -> Recording:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            size = sum(members[name].file_size for name in _DTYPES if name in members)
            if size > MOST_UNPACKED:
                most = f"a recording has {MOST_UNPACKED >> 20} MiB at most"
                raise RecordingError(f"{path} would unpack to {size >> 20:,} MiB, and {most}")
            header = json.loads(_unpacked(archive, members["header"], "header").tobytes())
            version = header.pop("accprobe recording")
            if version != VERSION:
                raise RecordingError(f"{path}: this accprobe reads recordings of version {VERSION}, the file has {version!r}")
            arrays = {name: _unpacked(archive, members[name], name) for name in _DTYPES}
        facts = TypeAdapter(list[Facts]).validate_python(header.pop("instructions"))
        return cls(**header, instructions={f.name: f for f in facts}, exchanges=_exchanges(arrays))


_DTYPES = {
    "header": np.uint8,
    "queries": np.uint8,
    "times": np.uint8,
    "result_of": np.uint32,
    "result_sizes": np.uint32,
    "results": np.uint8,
}

# Bytes of a member that are read at once: zipfile decompresses that many bytes of the file, whatever their unpacked size.
_PIECE = 1 << 12


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> np.ndarray:
    """Return a member as its array; zipfile unpacks no more of it than the archive declares."""
    with archive.open(info) as file:
        raw = b"".join(iter(lambda: file.read(_PIECE), b""))
    array: np.ndarray = np.load(io.BytesIO(raw))
    if array.dtype != _DTYPES[name]:
        raise ValueError(f"{name} has another type")
    return array


def _exchanges(arrays: dict[str, np.ndarray]) -> Exchanges:
    ends = np.cumsum(arrays["result_sizes"], dtype=np.int64).tolist()
    pool = arrays["results"].tobytes()
    if (ends or [0])[-1] != len(pool):
        raise ValueError("results are missing")
    results = [pool[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    kept = iter([results[i] for i in arrays["result_of"].tolist()])
    queries, times = arrays["queries"], arrays["times"].tolist()
    return {key.tobytes(): [next(kept) for _ in range(n)] for key, n in zip(queries, times, strict=True)}


def _packed(arrays: dict[str, np.ndarray]) -> bytes:
    """Return an .npz file, smaller than numpy's own, and the same bytes for the same arrays."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue(), zipfile.ZIP_LZMA)
    return packed.getvalue()


class RecordedDevice(Device):
    """Passes queries on to `device` and keeps their results; `take` returns the exchanges since its last call."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.kind, self.name, self.architecture, self.pure = device.kind, device.name, device.architecture, device.pure
        self._exchanges: Exchanges = {}
        self._times: dict[bytes, int] = {}

    def instructions(self) -> Sequence[Instruction]:
        return self._device.instructions()

    def explain_unavailable(self, inst: Instruction) -> str | None:
        return self._device.explain_unavailable(inst)

    def placements(self, inst: Instruction) -> int:
        return self._device.placements(inst)

    def lowering(self, inst: Instruction) -> Lowering | None:
        return self._device.lowering(inst)

    def settings(self, inst: Instruction) -> tuple[str, ...]:
        return self._device.settings(inst)

    def take(self) -> Exchanges:
        taken, self._exchanges, self._times = self._exchanges, {}, {}
        return taken

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        d = self._device.dot(inst, request, placement)
        self._note(query_key(inst, request, placement), kept_results(d))
        return d

    def dot_expecting(self, inst: Instruction, request: Request, expected: Bits, placement: int = 0) -> Bits:
        d = self._device.dot(inst, request, placement)
        self._note(query_key(inst, request, placement), kept_results(d, expected))
        return d

    def dot_under(self, setting: str, inst: Instruction, request: Request) -> Bits:
        d = self._device.dot_under(setting, inst, request)
        self._note(query_key(inst, request, 0, setting), kept_results(d))
        return d

    def _note(self, key: bytes, kept: bytes) -> None:
        """Keep results, unless this query had the same ones the last time."""
        results = self._exchanges.setdefault(key, [])
        times = self._times[key] = self._times.get(key, 0) + 1
        if not results or results[-1] != kept:
            results += [results[-1]] * (times - 1 - len(results)) if results else []
            results.append(kept)


class ReplayDevice(Device):
    """The device of a recording; a simulated one stays simulated.

    A query that was sent several times gets the recorded results in turn. Raises RecordingError if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._recording = path, Recording.load(path)
        recording = self._recording
        self.kind: DeviceKind = "simulated" if recording.kind == "simulated" else "replay"
        self.name, self.architecture, self.pure = recording.name, recording.architecture, recording.pure
        self._instructions = [parse(name) for name in recording.instructions]
        self._times: dict[bytes, int] = {}

    def describe(self) -> dict[str, object]:
        return dict(self._recording.facts)

    def environment(self) -> dict[str, str]:
        return self._recording.environment

    def instructions(self) -> Sequence[Instruction]:
        """Return the instructions that the recorded run was to measure."""
        return self._instructions

    def explain_unavailable(self, inst: Instruction) -> str | None:
        facts = self._recording.instructions.get(inst.name)
        if facts is None or not (facts.why_not or facts.complete):
            others = [] if inst in self._instructions else alike_but_n(inst, self._instructions)
            known = " and ".join(map(str, sorted(other.n for other in others)))
            return "not in the recording" + f", which has it at n = {known}" * bool(others)
        return facts.why_not

    def identity(self, inst: Instruction) -> Hashable:
        return self._facts(inst).leader or inst.name

    def placements(self, inst: Instruction) -> int:
        return self._facts(inst).placements

    def lowering(self, inst: Instruction) -> Lowering | None:
        return self._facts(inst).lowering

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        return self._results(inst, query_key(inst, request, placement))

    def dot_expecting(self, inst: Instruction, request: Request, expected: Bits, placement: int = 0) -> Bits:
        return self._results(inst, query_key(inst, request, placement), expected)

    def settings(self, inst: Instruction) -> tuple[str, ...]:
        return self._facts(inst).settings

    def dot_under(self, setting: str, inst: Instruction, request: Request) -> Bits:
        return self._results(inst, query_key(inst, request, 0, setting))

    def _results(self, inst: Instruction, key: bytes, expected: Bits | None = None) -> Bits:
        """Return the recorded results. Raises NotRecorded if the run did not send this query, or expected other results."""
        results = self._recording.exchanges.get(key)
        if results is None:
            recording = self._recording
            raise NotRecorded(
                f"{self._path} does not have a result of {inst.name} that this run needs. `accprobe run {recording.options}` of"
                f" accprobe {recording.accprobe} recorded it. Use the same options, or record again"
            )
        time = self._times.get(key, 0)
        self._times[key] = time + 1
        d = read_results(results[min(time, len(results) - 1)], inst.d.dtype, expected)
        if d is None:
            why = "the recording has only the differences of these results from another model's"
            raise NotRecorded(f"{self._path}: {inst.name}: {why}")
        return d

    def _facts(self, inst: Instruction) -> Facts:
        return self._recording.instructions.get(inst.name, Facts(inst.name))

"""Find cubins in a cubin, a fatbin, a library, an executable, an archive, a wheel or a folder.

Magic bytes show device code at any place of a memory-mapped file: fatbins (containers of cubins and PTX, compressed or not) and
separate cubins. A container has a header of 16 bytes (magic, version, its own size, bytes that follow), then entries. Each
entry has a header (kind, version, its size, payload bytes, …, architecture at byte 28). cuobjdump unpacks compressed entries,
one at a time: it refuses the library of vllm-flash-attn 2.6.2 as a whole ("Invalid ELF"). Sources of the layout:
`fatbinary_section.h` of the CUDA toolkit, and the output of `cuobjdump --list-elf`.
"""

from __future__ import annotations

import mmap
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

from accprobe.build import toolchain
from accprobe.errors import AccprobeError, ToolFailed, unreadable

LARGEST_FILE = 1 << 34
"""Size limit of a file, also in a wheel: libraries with code for every architecture are a few GiB."""

_FATBIN, _FATBIN_HEADER = b"\x50\xed\x55\xba", 16
_ELF, _CUDA_MACHINE = b"\x7fELF", 190
_ELF_ENTRY = 2
_WINDOW = 4 << 20
"""Bytes of a file that are searched at once."""
_NO_BITS = 8
"""Section type without bytes in the file."""
_BINARIES = re.compile(r"\.(cubin|fatbin|so|o|a|pyd|dll|exe)(\.|$)|^[^.]+$")
"""Names of files that may contain device code, in a folder or a wheel."""
_NUMBERS = count()
"""Numbers that name unpacked members. Members of several wheels may wait to be read."""


@dataclass(frozen=True)
class Piece:
    """Bytes start … stop - 1 of a file with one cubin, or one entry of a fatbin. label: the file as the user knows it, "x.whl:
    a/b.so". architecture: "sm_90", "" if it is not known without reading it.
    """

    file: Path
    label: str
    kind: Literal["cubin", "fatbin"]
    start: int
    stop: int
    architecture: str = ""

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass
class DeviceCode:
    """The device code of one file. label: the file as the user knows it. problems: sentences about parts that could not be
    read. unpacked: whether the file is a copy of a member of a wheel.
    """

    file: Path
    label: str
    unpacked: bool = False
    pieces: list[Piece] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def discard(self) -> None:
        """Remove a copy, which may have a GiB."""
        if self.unpacked:
            self.file.unlink(missing_ok=True)


def find(paths: Iterable[Path], unpacked: Path, architectures: tuple[str, ...] = ()) -> Iterator[DeviceCode]:
    """Yield the device code of each file, of these architectures if any are given.

    Members of a wheel are unpacked into folder `unpacked`, one at a time. A named file without device code, or one that is
    truncated or not NVIDIA's, is a problem too.
    """
    for path in paths:
        nothing = True
        try:
            for found in _in_path(path, unpacked):
                nothing = nothing and not (found.pieces or found.problems)
                found.pieces = [piece for piece in found.pieces if wanted(piece.architecture, architectures)]
                if not found.pieces:
                    found.discard()
                yield found
        except AccprobeError as e:
            yield DeviceCode(path, str(path), problems=[str(e)])
        else:
            if nothing:
                yield DeviceCode(path, str(path), problems=[_explain_nothing(path)])


def _in_path(path: Path, unpacked: Path) -> Iterator[DeviceCode]:
    """Yield the device code of a file, a folder's files or an archive's members, also where there is none.

    Raises AccprobeError for a pipe or a damaged archive.
    """
    if path.is_dir():
        files = (file for file in sorted(path.rglob("*")) if file.is_file() and _BINARIES.search(file.name))
        yield from (_in_file(DeviceCode(file, str(file))) for file in files)
    elif path.exists() and not path.is_file():  # reading it may never end
        raise AccprobeError(f"{path} is not a regular file: write the data of a pipe to a file first")
    elif zipfile.is_zipfile(path):
        yield from _in_wheel(path, unpacked)
    elif path.suffix in (".whl", ".zip") and path.exists():
        raise AccprobeError(f"{path} is not a complete archive: it is truncated or damaged")
    else:
        yield _in_file(DeviceCode(path, str(path)))


def _explain_nothing(path: Path) -> str:
    if path.is_dir() and not any(path.iterdir()):
        return f"{path} is an empty folder"
    if path.is_dir() or zipfile.is_zipfile(path):
        return f"{path} has no file with device code in it"
    if path.stat().st_size == 0:
        return f"{path} is empty"
    return f"{path} has no machine code of an NVIDIA GPU; assemble PTX with `ptxas -arch=sm_90a`"


def wanted(architecture: str, architectures: tuple[str, ...]) -> bool:
    """Return whether code for an architecture ("": not yet known) is wanted. No architectures mean all; sm_90 equals sm_90a."""
    return not architectures or not architecture or architecture.rstrip("af") in {name.rstrip("af") for name in architectures}


@contextmanager
def cubin(piece: Piece) -> Iterator[Path]:
    """Yield the piece as a cubin file that exists inside the context. Raises ToolMissing without cuobjdump, ToolFailed if it
    cannot read a fatbin.
    """
    with tempfile.TemporaryDirectory(prefix="accprobe") as folder:
        place = Path(folder)
        if piece.kind == "cubin" and piece.size == piece.file.stat().st_size:
            yield piece.file
            return
        with piece.file.open("rb") as file:
            file.seek(piece.start)
            content = file.read(piece.size)
        if piece.kind == "cubin":
            (place / "found.cubin").write_bytes(content)
        elif content.startswith(_ELF, start := struct.unpack_from("<4xI", content)[0]):  # it is not compressed
            (place / "found.cubin").write_bytes(content[start:])
        else:
            header = _FATBIN + struct.pack("<HHQ", 1, _FATBIN_HEADER, len(content))
            (place / "entry.fatbin").write_bytes(header + content)
            toolchain.run("cuobjdump", "--extract-elf", "all", "entry.fatbin", folder=place)
        cubins = sorted(place.glob("*.cubin"))
        if not cubins:
            raise ToolFailed(f"cuobjdump found no cubin in an entry of {piece.label}")
        yield cubins[0]


def _check_size(size: int, label: str) -> None:
    if size > LARGEST_FILE:
        raise AccprobeError(f"{label} is {size >> 30:,} GiB; no file with device code has more than {LARGEST_FILE >> 30}")


def _in_wheel(wheel: Path, unpacked: Path) -> Iterator[DeviceCode]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if not member.is_dir() and _BINARIES.search(Path(member.filename).name):
                    label = f"{wheel.name}: {member.filename}"
                    yield _in_member(archive, member, DeviceCode(unpacked / f"{next(_NUMBERS)}", label, unpacked=True))
    except zipfile.BadZipFile as e:
        raise AccprobeError(f"{wheel} is not a complete archive: {e}") from None


def _in_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, found: DeviceCode) -> DeviceCode:
    """Unpack a member of an archive to `found.file`, and read it. One that cannot be unpacked is a problem."""
    try:
        _check_size(member.file_size, found.label)
        with archive.open(member) as source, found.file.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    except AccprobeError as e:
        found.problems.append(str(e))
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as e:
        found.problems.append(f"{found.label} cannot be unpacked: {str(e) or 'it is truncated'}")
    else:
        _in_file(found)
    return found


def _in_file(found: DeviceCode) -> DeviceCode:
    """Add the pieces and problems of the file."""
    try:
        with found.file.open("rb") as file:
            if size := found.file.stat().st_size:
                _check_size(size, found.label)
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    _scan(data, found)
    except OSError as e:
        missing = "; give a binary with GPU code, or a folder of them" * isinstance(e, FileNotFoundError)
        found.problems.append(f"{unreadable(found.label, e)}{missing}")
    except AccprobeError as e:
        found.problems.append(str(e))
    return found


def _scan(data: mmap.mmap, found: DeviceCode) -> None:
    place = 0
    while (place := _next(data, place)) >= 0:
        is_cubin = data[place : place + 4] == _ELF
        try:
            place = (_cubin if is_cubin else _fatbin)(data, place, found)
        except AccprobeError as e:
            found.problems = found.problems or [str(e)]  # the first is the cause of others
            place += len(_ELF)


def _next(data: mmap.mmap, place: int) -> int:
    """Return the start of the next fatbin or ELF file, -1 if there is none. Searched parts do not stay in memory."""
    while place < len(data):
        stop = min(place + _WINDOW, len(data))
        found = [at for mark in (_FATBIN, _ELF) if (at := data.find(mark, place, stop + len(mark) - 1)) >= 0]
        page = place - place % mmap.PAGESIZE
        data.madvise(mmap.MADV_DONTNEED, page, (min(found) if found else stop) - page)
        if found:
            return min(found)
        place = stop
    return -1


def _fatbin(data: mmap.mmap, start: int, found: DeviceCode) -> int:
    """Add the cubins of the fatbin that begins at `start`, if one does; return where the search continues."""
    _, version, header, size = _unpack("<IHHQ", data, start)
    if (version, header) != (1, _FATBIN_HEADER):
        return start + len(_FATBIN)
    place, end = start + header, start + header + size
    if end > len(data):
        raise AccprobeError(f"{found.label} is truncated: a fatbin in it ends at byte {end:,}, the file at {len(data):,}")
    while place < end:
        kind, _, header, size = _unpack("<HHIQ", data, place)
        architecture = f"sm_{_unpack('<I', data, place + 28)[0]}"
        stop = place + header + size
        if header < 32 or stop > end:
            raise AccprobeError(f"{found.label} has a damaged fatbin, or one of an unknown kind")
        if kind == _ELF_ENTRY:
            found.pieces.append(Piece(found.file, found.label, "fatbin", place, stop, architecture))
        place = stop
    return end


def _cubin(data: mmap.mmap, start: int, found: DeviceCode) -> int:
    """Add the cubin that begins at `start`, if one does; return where the search continues."""
    if _machine(data, start) != _CUDA_MACHINE:
        return start + len(_ELF)
    size = _elf_size(data, start)
    if start + size > len(data):
        whole = "is" if start == 0 else "has a cubin that is"
        raise AccprobeError(f"{found.label} {whole} truncated: it ends at byte {start + size:,}, the file at {len(data):,}")
    found.pieces.append(Piece(found.file, found.label, "cubin", start, len(data) if start == 0 else start + size))
    return start + size


def _machine(data: mmap.mmap, start: int) -> int:
    is_elf = data[start : start + 5] == _ELF + b"\2"  # of 64 bits
    return int(_unpack("<H", data, start + 18)[0]) if is_elf else 0


def _elf_size(data: mmap.mmap, start: int) -> int:
    """Return the size of an ELF file from its header: the end of the section headers and of all parts that either kind of
    header names.
    """
    program, sections = _unpack("<QQ", data, start + 32)
    program_size, programs, section_size, count = _unpack("<HHHH", data, start + 54)
    size = max(sections + section_size * count, program + program_size * programs)
    if start + size <= len(data):
        for i in range(count):
            kind, offset, length = _unpack("<4xI16xQQ", data, start + sections + section_size * i)
            size = max(size, offset + (0 if kind == _NO_BITS else length))
    return size


def _unpack(form: str, data: mmap.mmap, place: int) -> tuple[int, ...]:
    """Unpack numbers at an offset; zeros after the end of the file."""
    return struct.unpack(form, data[place : place + struct.calcsize(form)].ljust(struct.calcsize(form), b"\0"))

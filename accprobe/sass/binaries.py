"""Find cubins in a cubin, a fatbin, a library, an executable, an archive, a wheel or a folder. cuobjdump extracts them."""

from __future__ import annotations

import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from accprobe.build import toolchain
from accprobe.errors import AccprobeError, ToolFailed, unreadable

LARGEST_FILE = 1 << 34
"""Size limit of a file, also in a wheel: libraries with code for every architecture are a few GiB."""

_CUDA_MACHINE = b"\xbe\0"
"""The machine of a cubin, in the ELF header from byte 18 on."""
_CONTAINERS = (b"\x7fELF", b"!<arch>\n", b"\x50\xed\x55\xba")
_BINARIES = re.compile(r"\.(cubin|fatbin|so|o|a)(\.|$)|^[^.]+$")
"""Names of files that may contain device code, in a folder or a wheel."""
_ARCHITECTURE = re.compile(r"\.(sm_\w+)\.cubin$")
_NO_CODE = "does not contain device code"
"""cuobjdump's message about a library without GPU code."""


@dataclass(frozen=True)
class Piece:
    """One cubin. label: the file as the user knows it, "x.whl: a/b.so". architecture: "sm_90", "" if it is not known without
    reading it. extracted: whether it is a temporary copy, to be removed once it is read.
    """

    path: Path
    label: str
    architecture: str = ""
    extracted: bool = False


def find(
    paths: Iterable[Path], folder: Path, problems: list[str], architectures: tuple[str, ...] = ()
) -> Iterator[list[Piece]]:
    """Yield the cubins of each file, of these architectures if any are given.

    They are extracted into new folders below `folder`, an absolute path. problems: gets a sentence about each part that could
    not be read, also about a named file without GPU code.
    """
    for path in paths:
        try:
            for pieces in _in_path(path, folder, problems):
                yield [piece for piece in pieces if wanted(piece.architecture, architectures)]
        except AccprobeError as e:
            problems.append(str(e))


def wanted(architecture: str, architectures: tuple[str, ...]) -> bool:
    """Return whether code for an architecture ("": not yet known) is wanted. No architectures mean all; sm_90 equals sm_90a."""
    return not architectures or not architecture or architecture.rstrip("af") in {name.rstrip("af") for name in architectures}


def _in_path(path: Path, folder: Path, problems: list[str]) -> Iterator[list[Piece]]:
    if path.is_dir():
        files = (each for each in sorted(path.rglob("*")) if each.is_file() and _BINARIES.search(each.name))
        yield from _any(path, (_try(each, str(each), folder, problems) for each in files))
    elif not path.exists():
        raise AccprobeError(f"there is no file {path}; give a binary with GPU code, or a folder of them")
    elif not path.is_file():
        raise AccprobeError(f"{path} is not a regular file: write the data of a pipe to a file first")
    elif path.suffix in (".whl", ".zip") or zipfile.is_zipfile(path):
        yield from _any(path, _in_wheel(path, folder, problems))
    else:
        yield _in_file(path, str(path), folder, problems)


def _any(place: Path, files: Iterable[list[Piece] | None]) -> Iterator[list[Piece]]:
    nothing = True
    for found in files:
        if found is not None:
            nothing = False
            yield found
    if nothing:
        raise AccprobeError(f"{place} has no file with GPU code in it")


def _in_wheel(wheel: Path, folder: Path, problems: list[str]) -> Iterator[list[Piece] | None]:
    """Read the members of a wheel as `_try` does, each from a copy."""
    try:
        archive = zipfile.ZipFile(wheel)
    except (zipfile.BadZipFile, OSError) as e:
        raise AccprobeError(f"{wheel} is not a complete archive: {e}") from None
    with archive:
        for member in archive.infolist():
            if member.is_dir() or not _BINARIES.search(Path(member.filename).name):
                continue
            label = f"{wheel.name}: {member.filename}"
            try:
                _check_size(member.file_size, label)
                copy = Path(archive.extract(member, tempfile.mkdtemp(dir=folder)))
            except AccprobeError as e:
                problems.append(str(e))
            except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as e:
                problems.append(f"{label} cannot be unpacked: {str(e) or 'it is truncated'}")
            else:
                found = _try(copy, label, folder, problems)
                if not found or found[0].path != copy:
                    copy.unlink()
                yield found
                continue
            yield []


def _try(path: Path, label: str, folder: Path, problems: list[str]) -> list[Piece] | None:
    """Read a file of a folder as `_in_file` does: files without machine code are skipped, damaged ones are reported."""
    try:
        return _in_file(path, label, folder, problems)
    except _NothingThere:
        return None
    except AccprobeError as e:
        problems.append(str(e))
        return []


class _NothingThere(AccprobeError):
    """The file has no machine code of a GPU."""


def _in_file(path: Path, label: str, folder: Path, problems: list[str]) -> list[Piece]:
    try:
        _check_size(path.stat().st_size, label)
        with path.open("rb") as file:
            start = file.read(20)
    except OSError as e:
        raise AccprobeError(unreadable(label, e)) from None
    if start.startswith(b"\x7fELF") and start[18:] == _CUDA_MACHINE:
        return [Piece(path, label, extracted=folder in path.parents)]
    if not start.startswith(_CONTAINERS):
        how = ": assemble PTX with `ptxas -arch=sm_90a FILE -o FILE.cubin`" if path.suffix == ".ptx" else ""
        raise _NothingThere(f"{label} has no GPU code{how}")
    return _extracted(path, label, folder, problems)


def _extracted(path: Path, label: str, folder: Path, problems: list[str]) -> list[Piece]:
    """Extract the cubins of a fatbin, library or archive. Raises ToolMissing without cuobjdump."""
    target, failed = Path(tempfile.mkdtemp(dir=folder)), False
    try:
        toolchain.run("cuobjdump", "--extract-elf", "all", str(path.resolve()), folder=target)
    except ToolFailed as e:
        if _NO_CODE in str(e):
            raise _NothingThere(f"{label} has no GPU code, or is truncated") from None
        problems.append(f"{label} cannot be read: {e}")
        failed = True
    found = sorted(target.iterdir(), key=lambda each: [int(part) for part in re.findall(r"\d+", each.name)])
    if not found and not failed:
        raise _NothingThere(
            f"{label} has PTX and no machine code: extract it with `cuobjdump --extract-ptx all`, and assemble it"
        )
    return [Piece(each, label, known[1] if (known := _ARCHITECTURE.search(each.name)) else "", True) for each in found]


def _check_size(size: int, label: str) -> None:
    if size > LARGEST_FILE:
        raise AccprobeError(f"{label} is {size >> 30:,} GiB; no file with GPU code has more than {LARGEST_FILE >> 30}")

"""Which of a device's instructions a survey is of: by glob, by name, or by full PTX opcode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from accprobe.devices.protocol import Device
from accprobe.errors import UnknownName, nearest
from accprobe.isa.instructions import Instruction, architectures_with, parse


def selected(device: Device, select: Sequence[str]) -> list[Instruction]:
    """The instructions of a device that any glob matches, in catalog order, then those that were named and are in no catalog.

    Raises UnknownName where one selects nothing.
    """
    known = {inst.name: inst for inst in device.instructions()}
    if not select:
        return list(known.values())
    names: set[str] = set()
    for glob in select:
        found = matching(known, glob)
        if not found:
            inst = _unlisted(glob, device.architecture, known)
            known[inst.name] = inst
            found = [inst.name]
        names.update(found)
    return [inst for name, inst in known.items() if name in names]


def matching(names: Iterable[str], glob: str) -> list[str]:
    """The names that a glob matches; a glob may also be a full PTX opcode."""
    found = [name for name in names if fnmatchcase(name, glob)]
    if found or any(mark in glob for mark in "*?["):
        return found
    try:
        canonical = parse(glob).name
    except UnknownName:
        return []
    return [name for name in names if name == canonical]


def _unlisted(glob: str, architecture: str, known: Mapping[str, Instruction]) -> Instruction:
    """An instruction that the catalog leaves out, such as a wgmma of another n."""
    if any(mark in glob for mark in "*?["):
        near = nearest(glob.replace("*", ""), known)
        all_of_them = f"`accprobe list --instructions {architecture}` names all {len(known)}"
        raise UnknownName(f"'{glob}' selects no instruction of {architecture}; {near} ({all_of_them})")
    inst = parse(glob)
    if architecture not in architectures_with(inst):
        raise UnknownName(f"{architecture} has no {inst.name}; it is of {', '.join(architectures_with(inst))}")
    return inst

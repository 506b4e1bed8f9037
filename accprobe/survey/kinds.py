"""Several GPUs: one of each kind is measured, the others of that kind are verified against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from accprobe.devices import open_device
from accprobe.devices.protocol import Device
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.verify.bulk import prepare_to_verify, verify_in_bulk
from accprobe.verify.outcome import Verification


def by_kind(names: Sequence[str]) -> dict[str, list[str]]:
    """The devices of those names, by marketing name, in their order. Raises DeviceError, UnknownName as `open_device`."""
    kinds: dict[str, list[str]] = {}
    for name in names:
        kinds.setdefault(open_device(name).name, []).append(name)
    return kinds


def verified_as(
    device: Device, models: Mapping[Instruction, DotModel], dots: int, seed: int
) -> Iterator[tuple[Instruction, Verification]]:
    """Whether another device of the same kind computes what the first one's models say, instruction by instruction."""
    runnable = {inst: model for inst, model in models.items() if device.why_not(inst) is None}
    prepare_to_verify(device, runnable)
    for inst, model in runnable.items():
        yield inst, verify_in_bulk(device, inst, model, dots, seed)

"""The models that a GPU is checked against."""

from __future__ import annotations

from typing import NamedTuple

from accprobe.devices.protocol import Device
from accprobe.errors import DeviceError
from accprobe.isa.instructions import Instruction
from accprobe.model.published import chip, known_models, names
from accprobe.model.tree import DotModel
from accprobe.report.names import named_models
from accprobe.report.published import recorded_of


class Trusted(NamedTuple):
    """source: a value of --like. remark: what the models were measured on, if not this kind of GPU; of `like`, only whether the
    device is simulated.
    """

    source: str
    models: dict[Instruction, DotModel]
    remark: str


def trusted(device: Device, like: str | None) -> Trusted:
    """Return the models of `like`; without it those recorded on that GPU kind, else on its architecture, else published ones.

    Raises UnknownName, ReportError; DeviceError where there are none.
    """
    simulated = "SIMULATED: no hardware is checked" if device.kind == "simulated" else ""
    if like is not None:
        return Trusted(like, named_models(like), simulated)
    if found := _recorded_of(device):
        return found
    for name in names():
        if chip(name).architecture == device.architecture:
            models = {inst: entry.model for inst, entry in known_models(name).items()}
            return Trusted(f"sim:{name}", models, f"published models of {chip(name).title}: nothing of this kind was measured")
    raise DeviceError(
        f"there is no model of {device.architecture}: measure a good GPU of this kind with `accprobe run -o FILE`, then give"
        " --like FILE"
    )


def _recorded_of(device: Device) -> Trusted | None:
    """Return the recorded models of that GPU kind, else of its architecture, else None."""
    recorded_on = {name: x.device.name for name, x in recorded_of(device.architecture).items() if x.instructions}
    if not recorded_on:
        return None
    same = [name for name, gpu in recorded_on.items() if _same_kind(gpu, device.name)]
    name = (same or list(recorded_on))[0]
    return Trusted(name, named_models(name), "" if same else f"models recorded on another GPU, an {recorded_on[name]}")


def _same_kind(recorded_on: str, name: str) -> bool:
    """Return whether one name begins with the other, word by word: "NVIDIA H200" and "NVIDIA H200 NVL" differ in the board."""
    return all(a == b for a, b in zip(recorded_on.split(), name.split(), strict=False))

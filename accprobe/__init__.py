"""Measures, bit for bit, the arithmetic of GPU matrix instructions.

    import accprobe

    device = accprobe.open_device("sim:h100")  # "gpu" for a GPU
    inst = accprobe.parse("wgmma.m64n8k32.f32.e4m3.e4m3")
    result = accprobe.characterise(device, inst)
    print(result.findings["effective_bits"].value, result.model.order)

Each name is imported when it is first used. `accprobe.predict` returns the result of a recorded model for your own operands.

Import functions with the name of their package from the package:
- `accprobe.verify.verify` compares a model with a device.
- `accprobe.evaluate.evaluate` computes the results of a model.
- `accprobe.survey.survey` measures a device as `accprobe run` does.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""Replaces typing.TYPE_CHECKING: importing typing takes longer than all else here, and Ctrl-C in it prints a traceback."""

if TYPE_CHECKING:
    from accprobe.devices import Device, open_device
    from accprobe.emulate import predict
    from accprobe.errors import AccprobeError
    from accprobe.infer.characterise import characterise
    from accprobe.isa.instructions import Instruction, catalog, parse
    from accprobe.model.tree import DotModel, FusedSum
    from accprobe.operands.request import Request
    from accprobe.records.findings import Finding
    from accprobe.report.report import Report

__version__ = "0.1.0"

__all__ = [
    "AccprobeError",
    "Device",
    "DotModel",
    "Finding",
    "FusedSum",
    "Instruction",
    "Report",
    "Request",
    "catalog",
    "characterise",
    "open_device",
    "parse",
    "predict",
]

_HOMES = {
    "AccprobeError": "errors",
    "Device": "operands.protocol",
    "DotModel": "model.tree",
    "Finding": "records.findings",
    "FusedSum": "model.tree",
    "Instruction": "isa.instructions",
    "Report": "report.report",
    "Request": "operands.request",
    "catalog": "isa.instructions",
    "characterise": "infer.characterise",
    "open_device": "devices",
    "parse": "isa.instructions",
    "predict": "emulate",
}
"""Where each name is defined."""


_PACKAGES = ("testing", "trace")
"""Packages that are imported when they are first used."""


def __getattr__(name: str) -> object:
    if name not in (*_HOMES, *_PACKAGES):
        raise AttributeError(f"module 'accprobe' has no attribute '{name}'")
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"accprobe.{name}")
    return getattr(import_module(f"accprobe.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

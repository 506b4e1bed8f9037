"""What arithmetic GPU matrix instructions really do, measured bit for bit.

    import accprobe

    device = accprobe.open_device("sim:h100")  # "gpu" for a GPU
    inst = accprobe.parse("wgmma.m64n8k32.f32.e4m3.e4m3")
    result = accprobe.characterise(device, inst)
    print(result.findings["effective_bits"].value, result.model.order)

What stands here is imported when it is asked for. Functions that are named as the room that they stand in are imported from it:
`accprobe.verify.verify` holds a model against a device, `accprobe.evaluate.evaluate` computes what it has, and
`accprobe.survey.survey` does what `accprobe run` does. `accprobe.emulate.matmul` multiplies whole matrices as a GPU does.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""As typing has it, whose import would take longer than all else here: Ctrl-C meanwhile is a traceback."""

if TYPE_CHECKING:
    from accprobe.devices import Device, open_device
    from accprobe.emulate import matmul
    from accprobe.errors import AccprobeError
    from accprobe.infer.characterise import characterise
    from accprobe.infer.findings import Finding
    from accprobe.isa.instructions import Instruction, catalog, parse
    from accprobe.model.tree import DotModel, FusedSum
    from accprobe.operands.request import Request
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
    "matmul",
    "open_device",
    "parse",
]

_HOMES = {
    "AccprobeError": "errors",
    "Device": "devices.protocol",
    "DotModel": "model.tree",
    "Finding": "infer.findings",
    "FusedSum": "model.tree",
    "Instruction": "isa.instructions",
    "Report": "report.report",
    "Request": "operands.request",
    "catalog": "isa.instructions",
    "characterise": "infer.characterise",
    "matmul": "emulate",
    "open_device": "devices",
    "parse": "isa.instructions",
}
"""Where each name is defined."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'accprobe' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"accprobe.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

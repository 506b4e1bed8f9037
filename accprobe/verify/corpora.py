"""Operands that covered recorded and published models, stored with the reports: coverage replays them before any search.

One archive holds them by formats and number of products. `scripts/corpora` writes it.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.build.checkout import data_folder
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request, shapes

NAME = "corpora.npz"

MODELS = "models"  # The array of models with a finished search: "DIGEST TRIES" each.


def stored_operands(inst: Instruction) -> Request | None:
    """Return the operands stored for the formats of an instruction; None if there are none."""
    arrays, name = _archive(), signature(inst)
    if f"{name}/c" not in arrays:
        return None
    return Request(**{column: arrays[f"{name}/{column}"] for column in shapes(inst)})


def tries_of(inst: Instruction, model: DotModel) -> int | None:
    """Return how many dot products were tried for the model; None if the stored operands are not known to cover it."""
    return _tries().get(digest(inst, model))


@cache
def _archive() -> dict[str, NDArray[Any]]:
    path = data_folder("reports") / NAME
    if not path.is_file():
        return {}
    with np.load(path) as stored:
        return dict(stored)


@cache
def _tries() -> dict[str, int]:
    lines = (str(line).split() for line in _archive().get(MODELS, np.zeros(0, "U1")))
    return {digest: int(tries) for digest, tries in lines}


def signature(inst: Instruction) -> str:
    """Return a name for all instructions with the same arrays and formats of operands."""
    scales = () if inst.scale is None else (inst.scale, inst.scale_block)
    return "-".join(map(str, (inst.a, inst.b, inst.c, inst.k, *scales)))


def digest(inst: Instruction, model: DotModel) -> str:
    """Return a short hash of the formats and of the fields of the model that differ from their default."""
    return hashlib.sha256(f"{signature(inst)} {inst.d} {_written(model)}".encode()).hexdigest()[:16]


def _written(value: object) -> str:
    if isinstance(value, Format) or not (is_dataclass(value) or isinstance(value, tuple)):
        return str(value)
    if isinstance(value, tuple):
        return f"({' '.join(map(_written, value))})"
    own = ((field.name, getattr(value, field.name)) for field in fields(value) if getattr(value, field.name) != field.default)
    return f"{type(value).__name__}({' '.join(f'{name}={_written(x)}' for name, x in own)})"

"""What is told between a command and the process that is Ray's driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Work = Callable[..., Iterator[str]]
"""A generator function of a module: of the device's name on its node, and of whatever else it is given. Its texts are told."""


@dataclass(frozen=True)
class FleetGpu:
    """One of the GPUs that a node claims. address: the node's; node: Ray's name of it, hexadecimal;
    number: which of `count`, in no order."""

    address: str
    node: str
    number: int
    count: int


@dataclass(frozen=True)
class Task:
    """Work for the GPU of that place in the cluster's list.

    device: a simulated one that stands in for the GPU; None: the GPU. seconds: how long the work means to take; patience: for
    how much longer, and for how long between two texts, it is waited for.
    """

    gpu: int
    work: Work
    arguments: tuple[Any, ...]
    device: str | None
    seconds: float
    patience: float


@dataclass(frozen=True)
class FleetEvent:
    """What became known of the work on a GPU.

    began: text is the number that Ray gave the GPU there. said: one of the work's texts. ended: in order. died: its process
    did, text says how. failed: text says why, and asking again would not help.
    """

    gpu: int
    what: Literal["began", "said", "ended", "died", "failed"]
    text: str = ""


@dataclass(frozen=True)
class NoCluster:
    """Why Ray could not be driven, in its own words."""

    reason: str

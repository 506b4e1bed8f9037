"""The outcome of a check: what was compared on each GPU, what differed, and on which board. Its JSON is `health.schema.json`.

Keys that say nothing are there all the same, as null or empty: who reads it need not ask. Bit patterns are hex strings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import BaseModel, Field

from accprobe.health.plan import HealthLevel
from accprobe.operands.exchange import Exchange
from accprobe.report.report import Tool
from accprobe.report.rows import STRICT

HEALTH_SCHEMA: Literal[1] = 1

GpuStatus = Literal["healthy", "differs", "failed"]
"""healthy: nothing that was compared differs. differs: some word does. failed: the GPU could not be checked, or stopped."""


class Smallest(BaseModel):
    """The fewest operands that still differ there; every other product is 0 × 0."""

    model_config = STRICT

    exchange: Exchange
    expected: str


class SmPlace(BaseModel):
    """Where on a GPU a word was computed; None of what the device does not tell. register_of_lane: of D's."""

    model_config = STRICT

    sm: int | None = None
    warp: int | None = None
    lane: int | None = None
    register_of_lane: int | None = None


class WrongWord(BaseModel):
    """One word that is not the model's.

    instruction, chain: what computed it: so many instructions, each adding to the result of the one before. kind: of operands.
    exchange: the operands of the whole chain, and what came out. bits: those that differ, 0 is the lowest. asked_again,
    differed_again: how often the same operands were asked there again, and how often they differed. smallest: None where the
    mismatch did not come back. temperature, clock: in °C and MHz when it was seen; None where nobody tells.
    """

    model_config = STRICT

    instruction: str
    chain: int
    kind: str
    place: SmPlace
    exchange: Exchange
    expected: str
    bits: tuple[int, ...]
    asked_again: int = 0
    differed_again: int = 0
    smallest: Smallest | None = None
    temperature: int | None = None
    clock: int | None = None


FULL_LOAD = 0.25
"""Of a unit's time: the least in which its kernel computes. Preparing operands takes the rest, and in a short check much."""


class UnitOutcome(BaseModel):
    """One matrix unit. dots: results compared; computed: those that the chains they end computed on the way, too.

    seconds: wall time in which they were, without preparing. loaded_seconds: of these, those in which the kernel multiplied
    operands that were drawn, at full load; None where the host compares. loaded_computed: as computed, in these seconds.
    """

    model_config = STRICT

    unit: str
    instruction: str
    chain: int
    dots: int
    computed: int
    wrong: int
    seconds: float
    loaded_seconds: float | None = None
    loaded_computed: int = 0

    @property
    def at_full_load(self) -> bool:
        return self.loaded_seconds is not None and 0 < FULL_LOAD * self.seconds <= self.loaded_seconds


class Board(BaseModel):
    """Which board it is. serial: where it was asked for."""

    model_config = STRICT

    uuid: str | None = None
    pci_bus: str | None = None
    serial: str | None = None


class ClusterNode(BaseModel):
    """Which machine of a Ray cluster. id: Ray's name of it; gpu: the GPU as Ray numbers it there, None where none was begun."""

    model_config = STRICT

    address: str
    id: str
    gpu: str | None = None


def whereabouts(device: str, node: ClusterNode | None) -> str:
    """ "cuda:0", or of a cluster "cuda:0 on 10.0.0.7 (3f2a9c01)"; of a simulated device also which GPU it stands in for."""
    if node is None:
        return device
    stands_for = f" for GPU {node.gpu}" if node.gpu and not device.startswith("cuda:") else ""
    return f"{device}{stands_for} on {node.address} ({node.id[:8]})"


class Sensors(BaseModel):
    """What NVML tells at one moment; None of what this board does not have.

    Temperature in °C, clocks in MHz, power in W. ecc: errors that memory corrected and could not, since the driver was loaded;
    remapped_rows: for errors that were corrected, and that could not be. throttled: why clocks are lower than they could be.
    """

    model_config = STRICT

    temperature: int | None = None
    sm_clock: int | None = None
    memory_clock: int | None = None
    power: float | None = None
    power_limit: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped_corrected: int | None = None
    remapped_uncorrected: int | None = None
    throttled: tuple[str, ...] = ()


class Load(BaseModel):
    """What the sensors showed while the GPU worked. power: the mean; throttled: all reasons that were ever given."""

    model_config = STRICT

    power: float | None = None
    most_power: float | None = None
    highest_temperature: int | None = None
    lowest_sm_clock: int | None = None
    throttled: tuple[str, ...] = ()


class GpuOutcome(BaseModel):
    """One GPU, so far.

    device: as it was asked for, "cuda:0". reason: why it failed. finished: all of the plan was done. models: whose models said
    what is right; remark: how far they are of this GPU kind. wrong_by_sm: words that differ, of each SM that has some; "" is
    what does not tell its SM. vanished: of `wrong`, comparisons that failed although each word, looked at by itself, was right:
    not the matrix unit erred but what compares, the SM's integer units and registers. sensors_missing: why there are none.
    shared: who else uses the GPU, in words. node: None on this host. deaths: how often a process that checked it died.
    number: from 1, which it is of several on this host that were asked for by one name; None where the name is its own.
    below_full_load: names of units that did not reach full load in the whole check.
    """

    model_config = STRICT

    device: str
    name: str
    kind: Literal["cuda", "simulated", ""]
    architecture: str
    status: GpuStatus
    reason: str = ""
    finished: bool = False
    models: str = ""
    remark: str = ""
    board: Board = Board()
    dots: int = 0
    wrong: int = 0
    seconds: float = 0.0
    sms: int | None = None
    vanished: int = 0
    wrong_by_sm: dict[str, int] = {}
    units: tuple[UnitOutcome, ...] = ()
    mismatches: tuple[WrongWord, ...] = ()
    before: Sensors | None = None
    after: Sensors | None = None
    load: Load | None = None
    sensors_missing: str = ""
    shared: str = ""
    node: ClusterNode | None = None
    deaths: int = 0
    number: int | None = None
    below_full_load: tuple[str, ...] = ()

    @classmethod
    def unopened(cls, device: str) -> GpuOutcome:
        """Of a GPU of which nothing is known yet."""
        return cls(device=device, name=device, kind="", architecture="", status="failed")

    @property
    def where(self) -> str:
        """ "cuda:0", "sim:h100 #2": of GPUs that are checked together, no two have the same."""
        numbered = f"{self.device} #{self.number}" if self.number else self.device
        return whereabouts(numbered, self.node)

    @property
    def ended(self) -> bool:
        """Nothing more comes of it."""
        return self.finished or bool(self.reason)

    def stopped(self, reason: str) -> GpuOutcome:
        """As far as it came; words that differ are not forgotten."""
        status: GpuStatus = "differs" if self.wrong else "failed"
        return self.model_copy(update={"status": status, "reason": reason, "finished": False})


OnOutcome = Callable[[int, GpuOutcome], None]
"""Called with the place of a GPU among those that are checked, and what is known of it so far."""


class HealthOutcome(BaseModel):
    """All GPUs that were checked together. level: None where other minutes were asked for; minutes: that were asked for."""

    model_config = STRICT

    schema_version: Literal[1] = Field(HEALTH_SCHEMA, alias="schema")
    tool: Tool
    level: HealthLevel | None
    minutes: float
    gpus: tuple[GpuOutcome, ...]

    @classmethod
    def of(cls, level: HealthLevel | None, minutes: float, gpus: Sequence[GpuOutcome]) -> HealthOutcome:
        return cls(schema=HEALTH_SCHEMA, tool=Tool.current(), level=level, minutes=minutes, gpus=tuple(gpus))

    @property
    def differs(self) -> bool:
        return any(gpu.status == "differs" for gpu in self.gpus)

    @property
    def failed(self) -> bool:
        return any(gpu.status == "failed" for gpu in self.gpus)

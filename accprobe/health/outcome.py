"""The outcome of a check: comparisons and mismatches of each GPU, and its board. Its JSON follows `health.schema.json`.

Every key is always present, null or empty where nothing is known. Bit patterns are hex strings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from accprobe.health.plan import HealthLevel
from accprobe.operands.exchange import Exchange
from accprobe.records.claims import StrictRecord
from accprobe.report.report import Tool

HEALTH_SCHEMA: Literal[1] = 1

GpuStatus = Literal["healthy", "differs", "failed"]
"""healthy: no mismatch. differs: a mismatch. failed: the GPU could not be checked, or stopped."""


class Smallest(StrictRecord):
    """The fewest operands whose result still differs; every other product is 0 × 0."""

    exchange: Exchange
    expected: str


class SmPlace(StrictRecord):
    """The place on a GPU where a result was computed; None where unknown. register_of_lane: among the registers of D."""

    sm: int | None = None
    warp: int | None = None
    lane: int | None = None
    register_of_lane: int | None = None


class HealthMismatch(StrictRecord):
    """One mismatch.

    chain: number of instructions that computed it, each adding to the result before. kind: of operands. exchange: the operands
    of the whole chain, and the result. bits: differing bits, 0 is the lowest. repetitions: of the same operands there.
    repeated_mismatches: among them. smallest: None where no repetition differed. temperature, clock: in °C and
    MHz at that time; None where unknown.
    """

    instruction: str
    chain: int
    kind: str
    place: SmPlace
    exchange: Exchange
    expected: str
    bits: tuple[int, ...]
    repetitions: int = 0
    repeated_mismatches: int = 0
    smallest: Smallest | None = None
    temperature: int | None = None
    clock: int | None = None


FULL_LOAD = 0.25
"""Share of a unit's `seconds` from which `loaded_seconds` counts as full load. Making operands takes most of the rest."""


class UnitOutcome(StrictRecord):
    """One matrix unit or function unit. dots: results compared; computed: these and the intermediate results of their chains.

    seconds: wall time of its turns, which also draw and evaluate operands, without `UnitBench.prepare`. loaded_seconds: the
    part in which kernels compute on random operands at full load, None where the host compares. loaded_computed: as `computed`,
    in that part.
    """

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


class Board(StrictRecord):
    """The identity of a board. serial: None unless --with-serial."""

    uuid: str | None = None
    pci_bus: str | None = None
    serial: str | None = None


class ClusterNode(StrictRecord):
    """A node of a Ray cluster. id: Ray's name of it; gpu: Ray's number of the GPU there, None before the check began."""

    address: str
    id: str
    gpu: str | None = None


class Sensors(StrictRecord):
    """NVML's values at one moment; None where it gives none.

    Temperature in °C, clocks in MHz, power in W. ecc: corrected and uncorrected errors since the driver was loaded; remapped:
    rows remapped for either. throttled: reasons for lower clocks.
    """

    temperature: int | None = None
    sm_clock: int | None = None
    power: float | None = None
    power_limit: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped_corrected: int | None = None
    remapped_uncorrected: int | None = None
    throttled: tuple[str, ...] = ()


class Load(StrictRecord):
    """Sensor values during the check. power: the mean; throttled: all reasons seen."""

    power: float | None = None
    highest_temperature: int | None = None
    lowest_sm_clock: int | None = None
    throttled: tuple[str, ...] = ()


class GpuOutcome(StrictRecord):
    """One GPU, so far.

    device: the user's name, "cuda:0". reason: why it ended early. finished: the whole plan was done. models: source of the
    models; remark: as in `Trusted`. wrong_by_sm: mismatches of each SM that has some, "" for an unknown SM. vanished:
    comparisons of `wrong` that failed although each result was right on a second look: a fault of the comparison, which uses
    the SM's integer units and registers. sensors_missing: why there are no sensors. shared: other users of the GPU, in words.
    node: None on this host. deaths: how often a process that checked it died. below_full_load: units that did not reach
    full load.
    """

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
    wrong_by_sm: dict[str, int] = Field(default={})
    units: tuple[UnitOutcome, ...] = ()
    mismatches: tuple[HealthMismatch, ...] = ()
    before: Sensors | None = None
    after: Sensors | None = None
    load: Load | None = None
    sensors_missing: str = ""
    shared: str = ""
    node: ClusterNode | None = None
    deaths: int = 0
    below_full_load: tuple[str, ...] = ()

    @classmethod
    def unopened(cls, device: str) -> GpuOutcome:
        """Return the outcome of a GPU before anything is known."""
        return cls(device=device, name=device, kind="", architecture="", status="failed")

    @property
    def where(self) -> str:
        """Return "cuda:0" or "cuda:0 on 10.0.0.7 (3f2a9c01)", unique among the GPUs of a check."""
        if self.node is None:
            return self.device
        stands_for = f" for GPU {self.node.gpu}" if self.node.gpu and not self.device.startswith("cuda:") else ""
        return f"{self.device}{stands_for} on {self.node.address} ({self.node.id[:8]})"

    @property
    def ended(self) -> bool:
        """Return whether the check of this GPU is over."""
        return self.finished or bool(self.reason)

    def stopped(self, reason: str) -> GpuOutcome:
        """Return the outcome so far with a reason; mismatches keep the status `differs`."""
        status: GpuStatus = "differs" if self.wrong else "failed"
        return self.model_copy(update={"status": status, "reason": reason, "finished": False})


OnOutcome = Callable[[int, GpuOutcome], None]
"""Called with the index of a GPU and its outcome so far."""


class HealthOutcome(StrictRecord):
    """All GPUs of one check. level: None where --minutes was given; minutes: of the plan."""

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

"""NVML's data of one GPU: its board, its other users, and its sensors during a check. Needs nvidia-ml-py."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from accprobe.build import install
from accprobe.errors import ToolMissing
from accprobe.health.outcome import Board, Load, Sensors

BETWEEN_SAMPLES = 0.25
"""Seconds."""

BUSY = 5
"""Utilization in per cent from which a GPU counts as in use."""

HELD_DOWN = {
    0x2: "application clocks are set",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Reasons for lower clocks, from nvml.h (nvmlClocksEventReason…), without idleness and display clocks."""


class Nvml:
    """One GPU, by its UUID. Raises ToolMissing where NVML is not available."""

    def __init__(self, uuid: str) -> None:
        try:
            import pynvml
        except ImportError:
            raise ToolMissing(f"no NVML: pynvml is not installed: {install.NVML}") from None
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as e:
            raise ToolMissing(f"no NVML: {e}") from None
        self.uuid = uuid

    def board(self, serial: bool) -> Board:
        """serial: include the serial number."""
        bus = self._query(lambda: self._nvml.nvmlDeviceGetPciInfo(self._gpu).busId)
        number = self._query(lambda: self._nvml.nvmlDeviceGetSerial(self._gpu)) if serial else None
        return Board(uuid=self.uuid, pci_bus=_text(bus), serial=_text(number))

    def others(self) -> str:
        """Return who uses the GPU, in words; "" for nobody. To be called before this process opens it."""
        used = self._query(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._gpu)) or []
        rates = self._query(lambda: self._nvml.nvmlDeviceGetUtilizationRates(self._gpu))
        busy = rates.gpu if rates else 0
        if not used and busy < BUSY:
            return ""
        memory = sum(each.usedGpuMemory or 0 for each in used) / 2**30
        held = f"{len(used)} process{'es' * (len(used) != 1)} with {memory:.1f} GiB, " if used else ""
        return f"in use by others ({held}busy {busy} % of the time): this check takes its share, and theirs becomes smaller"

    def sample(self) -> Sensors:
        nvml, gpu, query = self._nvml, self._gpu, self._query
        rows = query(lambda: nvml.nvmlDeviceGetRemappedRows(gpu)) or (None, None)
        power, limit = (
            query(lambda: nvml.nvmlDeviceGetPowerUsage(gpu)),
            query(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu)),
        )
        reasons = query(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)) or 0
        return Sensors(
            temperature=query(lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
            sm_clock=query(lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
            power=None if power is None else power / 1e3,
            power_limit=None if limit is None else limit / 1e3,
            ecc_corrected=self._errors(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrected=self._errors(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            remapped_corrected=rows[0],
            remapped_uncorrected=rows[1],
            throttled=tuple(why for bit, why in HELD_DOWN.items() if reasons & bit),
        )

    def _errors(self, kind: int) -> int | None:
        nvml = self._nvml
        errors: int | None = self._query(lambda: nvml.nvmlDeviceGetTotalEccErrors(self._gpu, kind, nvml.NVML_VOLATILE_ECC))
        return errors

    def _query(self, read: Callable[[], Any]) -> Any:
        """Return the value, or None if the board or the driver has none, or this user may not read it."""
        try:
            return read()
        except self._nvml.NVMLError:
            return None


def _text(value: str | bytes | None) -> str | None:
    """Decode the bytes that older bindings return."""
    return value.decode() if isinstance(value, bytes) else value


class Watch:
    """Samples the sensors in a thread until it is stopped."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self.before = self.latest = nvml.sample()
        self._samples = [self.before]
        self._stopped = threading.Event()
        threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        while not self._stopped.wait(BETWEEN_SAMPLES):
            self.latest = self._nvml.sample()
            self._samples.append(self.latest)

    def stop(self) -> None:
        self._stopped.set()

    @property
    def load(self) -> Load:
        """Return the summary of the samples so far."""
        power = [each.power for each in self._samples if each.power is not None]
        temperatures = [each.temperature for each in self._samples if each.temperature is not None]
        clocks = [each.sm_clock for each in self._samples if each.sm_clock is not None]
        return Load(
            power=round(sum(power) / len(power), 1) if power else None,
            highest_temperature=max(temperatures, default=None),
            lowest_sm_clock=min(clocks, default=None),
            throttled=tuple(sorted({why for each in self._samples for why in each.throttled})),
        )

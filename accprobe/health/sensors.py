"""NVML's data of one GPU: its board, its other users, and its sensors during a check. Needs nvidia-ml-py."""

from __future__ import annotations

import threading
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
        info, number = self._query("PciInfo"), self._query("Serial") if serial else None
        return Board(uuid=self.uuid, pci_bus=_text(info and info.busId), serial=_text(number))

    def others(self) -> str:
        """Return who uses the GPU, in words; "" for nobody. To be called before this process opens it."""
        used, rates = self._query("ComputeRunningProcesses") or [], self._query("UtilizationRates")
        busy = rates.gpu if rates else 0
        if not used and busy < BUSY:
            return ""
        memory = sum(each.usedGpuMemory or 0 for each in used) / 2**30
        held = f"{len(used)} process{'es' * (len(used) != 1)} with {memory:.1f} GiB, " if used else ""
        return f"in use by others ({held}busy {busy} % of the time): this check takes its share, and theirs becomes smaller"

    def sample(self) -> Sensors:
        nvml, query = self._nvml, self._query
        rows = query("RemappedRows") or (None, None)
        power, limit = query("PowerUsage"), query("EnforcedPowerLimit")
        reasons = query("CurrentClocksThrottleReasons") or 0
        return Sensors(
            temperature=query("Temperature", nvml.NVML_TEMPERATURE_GPU),
            sm_clock=query("ClockInfo", nvml.NVML_CLOCK_SM),
            power=None if power is None else power / 1e3,
            power_limit=None if limit is None else limit / 1e3,
            ecc_corrected=query("TotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC),
            ecc_uncorrected=query("TotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),
            remapped_corrected=rows[0],
            remapped_uncorrected=rows[1],
            throttled=tuple(why for bit, why in HELD_DOWN.items() if reasons & bit),
        )

    def _query(self, what: str, *arguments: int) -> Any:
        """Return a value of nvmlDeviceGet…, or None if the board or the driver has none, or this user may not read it."""
        try:
            return getattr(self._nvml, f"nvmlDeviceGet{what}")(self._gpu, *arguments)
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

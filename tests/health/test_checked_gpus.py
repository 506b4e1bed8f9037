"""The check of one GPU, and of all of a host at once: simulated ones, faulty ones, some that fail, die or hang."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from types import SimpleNamespace

import numpy as np
import pytest

from accprobe import devices
from accprobe.devices.simulated import (
    FAULTY_PRODUCT,
    FAULTY_SM,
    FLIPPED_BIT,
    SMS,
    FaultyDevice,
    SimulatedDevice,
    simulated_device,
)
from accprobe.errors import DeviceError, ToolMissing, UnknownName
from accprobe.health import check
from accprobe.health.bench import Turn
from accprobe.health.check import KEPT_OF_AN_SM, MOST_KEPT, check_gpu, trusted
from accprobe.health.outcome import GpuOutcome, HealthOutcome, SmPlace
from accprobe.health.plan import SECONDS, UNITS, CheckPlan
from accprobe.health.sensors import Nvml, Watch
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.operands.kinds import draw
from accprobe.operands.request import Request
from accprobe.operands.sparse import stored_products
from accprobe.render.monitoring import health_prometheus
from accprobe.render.subjects.health import gpu_verdict
from accprobe.report.names import named_models

SHORT = CheckPlan(seconds=0.5, again=20)
DENSE = [name for name in UNITS if not name.endswith("sparse")]


def last(name: str, plan: CheckPlan = SHORT) -> GpuOutcome:
    *_, outcome = check_gpu(name, plan)
    return outcome


def test_a_healthy_gpu() -> None:
    every = list(check_gpu("sim:h100", SHORT))
    outcome = every[-1]
    assert (outcome.status, outcome.finished, outcome.kind, outcome.models) == ("healthy", True, "simulated", "sim:h100")
    assert [unit.unit for unit in outcome.units] == DENSE
    assert outcome.dots == sum(unit.dots for unit in outcome.units) > 0
    assert outcome.sms is None, "nothing says on which SM a published model is computed"
    assert [each.dots for each in every] == sorted(each.dots for each in every)
    assert not any(each.finished for each in every[:-1])


def faulty_words(outcome: GpuOutcome) -> None:
    """That SM and no other is named, for each unit, and each fault is shrunk to its one product."""
    assert (outcome.status, outcome.sms) == ("differs", SMS)
    assert outcome.wrong_by_sm == {str(FAULTY_SM): outcome.wrong}
    assert outcome.wrong == sum(unit.wrong for unit in outcome.units)
    for unit in outcome.units:
        words = [word for word in outcome.mismatches if word.instruction == unit.instruction]
        assert len(words) == KEPT_OF_AN_SM
        for word in words:
            inst = parse(word.instruction)
            assert word.place == SmPlace(sm=FAULTY_SM)
            assert word.bits == (FLIPPED_BIT,)
            assert (word.repetitions, word.repeated_mismatches) == (20, 20)
            smallest = stored_products(inst, word.smallest.exchange.request(inst))
            assert np.flatnonzero(smallest.a[0] | smallest.b[0]).tolist() == [FAULTY_PRODUCT % inst.stored.k]
    assert len(outcome.mismatches) <= MOST_KEPT


def test_a_faulty_sm_is_named_and_its_operands_are_shrunk() -> None:
    outcome = last("faulty:h100")
    assert [unit.unit for unit in outcome.units] == DENSE
    faulty_words(outcome)


def test_sparse_units_are_checked_where_somebody_has_models(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {inst: model for inst, model in named_models("h200").items() if inst.sparse and "wgmma" in inst.name}
    monkeypatch.setattr(check, "_open_device", lambda name: FaultyDevice(models))
    outcome = last("faulty:h200", replace(SHORT, like="h200"))
    assert [unit.unit for unit in outcome.units] == [name for name in UNITS if name not in DENSE]
    faulty_words(outcome)


def test_a_faulty_sm_is_wrong_for_formats_narrower_than_a_byte() -> None:
    inst = parse("mma.sync.m16n8k32.kind::f8f6f4.f32.e2m1.e2m1.f32")
    d = simulated_device("rtx5090", faulty=True).dot_on_every_sm(inst, draw("uniform", inst, np.random.default_rng(0), 100))
    assert (d[FAULTY_SM] != d[0]).any()


class Flaky(SimulatedDevice):
    """One answer of its first call is wrong, and none later: a fault that does not come back."""

    wrong = 1

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        d = super().dot(inst, request)
        if self.wrong:
            d, self.wrong = d.copy(), 0
            d[100] ^= d.dtype.type(1)
        return d


class Stopping(SimulatedDevice):
    """Fails at its fourth call."""

    calls = 0

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        self.calls += 1
        if self.calls == 4:
            raise DeviceError("cuda:0 failed to run it: out of order")
        return super().dot(inst, request)


def opened(monkeypatch: pytest.MonkeyPatch, kind: type[SimulatedDevice]) -> None:
    h100 = simulated_device("h100")
    models = {inst: h100.model(inst) for inst in h100.instructions() if h100.explain_unavailable(inst) is None}
    monkeypatch.setattr(check, "open_device", lambda name: kind(models, h100.name))


def test_a_fault_that_does_not_come_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    opened(monkeypatch, Flaky)
    outcome = last("sim:h100")
    assert (outcome.status, outcome.wrong, outcome.wrong_by_sm) == ("differs", 1, {"": 1})
    (word,) = outcome.mismatches
    assert (word.repeated_mismatches, word.smallest, word.bits) == (0, None, (0,))


def test_a_gpu_that_stops_keeps_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    opened(monkeypatch, Stopping)
    outcome = last("sim:h100", CheckPlan(seconds=0.01))
    assert (outcome.status, outcome.finished) == ("failed", False)
    assert outcome.reason == "cuda:0 failed to run it: out of order"
    assert outcome.dots > 0


class Clock:
    """Seconds that pass only where somebody works."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class PlannedBench:
    """Prepares for so long, computes at full load for a share of its turns, and takes a rate of 1,000 Tops/s then."""

    chain = 1

    def __init__(self, inst: Instruction, clock: Clock, preparing: float, share: float | None) -> None:
        self.inst, self.instruction, self._clock, self._preparing, self._share = inst, inst.name, clock, preparing, share

    def prepare(self) -> Turn:
        self._clock.now += self._preparing
        return Turn(1, 1, 0.0, loaded_seconds=None if self._share is None else 0.0)

    def turn(self, seconds: float) -> Turn:
        self._clock.now += seconds + 1e-4  # as a real one, a turn takes longer than was asked for
        loaded = None if self._share is None else self._share * seconds
        computed = int(1e15 * (loaded or 0) / 2 / self.inst.k)
        return Turn(1 + computed, 1 + computed, seconds, loaded_seconds=loaded, loaded_computed=computed)


def checked_with(monkeypatch: pytest.MonkeyPatch, preparing: float, shares: Mapping[str, float | None]) -> GpuOutcome:
    """What becomes of a quick check of units that have such a share of full load."""
    clock, inst = Clock(), parse("wgmma.m64n256k32.f32.e4m3.e4m3")
    monkeypatch.setattr(check, "time", clock)
    monkeypatch.setattr(check, "open_device", lambda name: named("NVIDIA H200", "sm_90a"))
    monkeypatch.setattr(check, "trusted", lambda device, like: ("h200", dict.fromkeys([inst]), ""))
    monkeypatch.setattr(check, "chosen", lambda device, models: dict.fromkeys(shares, inst))
    benches = {unit: PlannedBench(inst, clock, preparing, share) for unit, share in shares.items()}
    monkeypatch.setattr(check, "_benches", lambda device, units, seed: benches)
    return last("cuda:0", CheckPlan(SECONDS["quick"]))


@pytest.mark.parametrize(("preparing", "seconds"), [(0.0, 2.5), (0.2, 2.3), (8.0, 1.875)])
def test_preparing_does_not_take_a_unit_s_time(monkeypatch: pytest.MonkeyPatch, preparing: float, seconds: float) -> None:
    outcome = checked_with(monkeypatch, preparing, dict.fromkeys(UNITS, 0.9))
    assert [unit.seconds for unit in outcome.units] == pytest.approx([seconds] * len(UNITS), abs=0.84)
    assert min(unit.seconds for unit in outcome.units) >= 1.87
    assert sum(unit.seconds for unit in outcome.units) == pytest.approx(seconds * len(UNITS), abs=0.5)
    assert (outcome.status, outcome.finished, outcome.below_full_load) == ("healthy", True, ())
    assert gpu_verdict(outcome) == f"healthy: 0 mismatches in {outcome.dots:,} results"


def test_units_below_full_load_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {"fp8": 0.2, "f16": 0.9, "tf32": 0.0, "f64": None}
    outcome = checked_with(monkeypatch, 1.0, shares)
    assert (outcome.status, outcome.below_full_load) == ("healthy", ("fp8", "tf32", "f64"))
    _, fp8, tf32, f64 = gpu_verdict(outcome).split("; ")
    assert fp8 == "fp8 did not reach full load: 200.0 of 1,000.0 Tops/s"
    assert re.fullmatch(r"tf32 did not reach full load: [\d.e-]+ Tops/s", tf32)
    assert re.fullmatch(r"f64 did not reach full load: [\d.e-]+ Tops/s, as the host compares its results", f64)
    metrics = health_prometheus(HealthOutcome.of("quick", 1 / 3, [outcome]))
    lacking = re.findall(r'below_full_load\{.*unit="(\w+)"\} 1', metrics)
    assert lacking == ["fp8", "tf32", "f64"]


def named(name: str, architecture: str) -> SimulatedDevice:
    device = SimulatedDevice({}, name, architecture)
    device.kind = "cuda"
    return device


@pytest.mark.parametrize(
    ("name", "architecture", "source", "remark"),
    [
        ("NVIDIA H200", "sm_90a", "h200", ""),
        ("NVIDIA H200 NVL", "sm_90a", "h200", ""),
        ("NVIDIA H100 80GB HBM3", "sm_90a", "h100", ""),
        ("NVIDIA GH200 480GB", "sm_90a", "h100", "models recorded on another GPU, an NVIDIA H100 80GB HBM3"),
        ("NVIDIA A100-SXM4-80GB", "sm_80", "sim:a100", "published models of A100: nothing of this kind was measured"),
    ],
)
def test_whose_models_say_what_is_right(name: str, architecture: str, source: str, remark: str) -> None:
    found = trusted(named(name, architecture), None)
    assert (found.source, found.remark) == (source, remark)
    assert all(inst.stored.k == model.products for inst, model in found.models.items())


def test_an_architecture_that_nobody_knows_says_what_to_run() -> None:
    with pytest.raises(DeviceError, match=r"no model of sm_75: .*`accprobe run -o FILE`, then give --like FILE"):
        trusted(named("Tesla T4", "sm_75"), None)


def all_of(names: list[str], plan: CheckPlan = SHORT) -> list[GpuOutcome]:
    latest: dict[int, GpuOutcome] = {}
    check.check_host(names, plan, latest.__setitem__)
    return [latest[index] for index in range(len(names))]


def test_all_gpus_of_a_host_at_once() -> None:
    faulty, unknown = all_of(["faulty:h100", "sim:nope"], CheckPlan(seconds=0.1, again=5))
    assert (faulty.status, unknown.status) == ("differs", "failed")
    assert faulty.ended
    assert unknown.ended


def dies(name: str, plan: CheckPlan, sending: Connection) -> None:
    sending.send(GpuOutcome.unopened(name).model_copy(update={"status": "healthy", "dots": 5}))
    os._exit(3)


def hangs(name: str, plan: CheckPlan, sending: Connection) -> None:
    if name == "sim:h100":
        sending.send(GpuOutcome.unopened(name).model_copy(update={"status": "healthy", "finished": True}))
        return
    time.sleep(1000)


def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_check_in_worker", dies)
    (seen,) = all_of(["sim:h100"])
    assert (seen.status, seen.dots, seen.reason) == ("failed", 5, "its process died (exit status 3)")


@pytest.mark.slow  # it waits for a process that hangs
def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_check_in_worker", hangs)
    monkeypatch.setattr(check, "HANG_SECONDS", 8.0)
    done, hung = all_of(["sim:h100", "sim:a100"])
    assert (done.status, done.reason) == ("healthy", "")
    assert (hung.status, hung.reason) == ("failed", "it hangs: not finished 8 s after the planned end")
    time.sleep(0.2)
    assert not multiprocessing.active_children()


def test_names_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.device_names("cuda:0, sim:h100") == ["cuda:0", "sim:h100"]
    with pytest.raises(UnknownName, match="cuda:0 is named twice"):
        devices.device_names("cuda:0,cuda:1,cuda:0")
    monkeypatch.setattr("accprobe.build.driver.gpu_count", lambda: 3)
    monkeypatch.setattr("accprobe.build.driver.explain_missing_gpu", lambda: None)
    assert devices.device_names("all") == ["cuda:0", "cuda:1", "cuda:2"]


class NVMLError(Exception):
    pass


def not_supported(*_: object) -> None:
    raise NVMLError("Not Supported")


def fake_nvml(values: Mapping[str, object]) -> SimpleNamespace:
    """Return pynvml with these values, of a board that has no remapped rows."""
    names = ("TEMPERATURE_GPU", "CLOCK_SM", "MEMORY_ERROR_TYPE_CORRECTED", "MEMORY_ERROR_TYPE_UNCORRECTED", "VOLATILE_ECC")
    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetRemappedRows=not_supported,
        **{f"NVML_{name}": number for number, name in enumerate(names)},
        **{f"nvmlDeviceGet{name}": lambda *_, value=value: value for name, value in values.items()},
    )


def test_sensors(monkeypatch: pytest.MonkeyPatch) -> None:
    values: Mapping[str, object] = {
        "PciInfo": SimpleNamespace(busId=b"00000000:1B:00.0"),
        "Serial": "123",
        "PowerUsage": 612_400,
        "EnforcedPowerLimit": 700_000,
        "Temperature": 61,
        "ClockInfo": 1410,
        "CurrentClocksThrottleReasons": 0x1 | 0x4 | 0x40,
        "TotalEccErrors": 7,
    }
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(values))
    gpu = Nvml("GPU-1")
    assert gpu.board(serial=False).model_dump() == {"uuid": "GPU-1", "pci_bus": "00000000:1B:00.0", "serial": None}
    assert gpu.board(serial=True).serial == "123"
    sample = gpu.sample()
    assert (sample.power, sample.power_limit, sample.temperature, sample.sm_clock) == (612.4, 700.0, 61, 1410)
    assert (sample.ecc_corrected, sample.remapped_corrected) == (7, None), "this board has no remapped rows"
    assert sample.throttled == ("power cap", "hardware thermal slowdown")
    watch = Watch(gpu)
    watch.stop()
    assert (watch.load.power, watch.load.highest_temperature) == (612.4, 61)


def test_no_nvml_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ToolMissing, match=r"^no NVML: pynvml is not installed: .*nvidia-ml-py"):
        Nvml("GPU-1")
    broken = fake_nvml({})
    broken.nvmlInit = not_supported
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    with pytest.raises(ToolMissing, match=r"^no NVML: Not Supported$"):
        Nvml("GPU-1")

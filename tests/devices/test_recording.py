"""Devices that evaluate models or replay a recording."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from commands import invoke
from fakes import DENSE, SPARSE, WIDE, FakeDevice, Measured, content

from accprobe.devices import Device, open_device, recording
from accprobe.devices.recording import RecordedDevice, Recording, ReplayDevice
from accprobe.devices.simulated import SimulatedDevice, simulated_device
from accprobe.errors import NotRecorded, RecordingError
from accprobe.isa.formats import FORMATS, Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.model.tree import DotModel, FloatArithmetic, chain
from accprobe.operands.kinds import draw
from accprobe.operands.request import Request
from accprobe.report.report import Report
from accprobe.survey import run as survey_run
from accprobe.survey import survey

SOME = ["wgmma.m64n8k32.f32.e4m3.e4m3", "mma.sync.m8n8k4.f64*", "mma.sync*k32.s32.s8.u8*"]
FP8 = parse("wgmma.m64n8k32.f32.e4m3.e4m3")


class Unlike(Measured):
    """A GPU whose instructions are no pure functions, as a real one's are not known to be."""

    def __init__(self) -> None:
        known = known_models("h100")
        lowerings = {inst: entry.lowering for inst, entry in known.items()}
        super().__init__({inst: entry.model for inst, entry in known.items()}, lowerings=lowerings)

    def identity(self, inst: Instruction) -> str:
        return inst.name

    def describe(self) -> dict[str, object]:
        return {"sm_count": 3}

    def placements(self, inst: Instruction) -> int:
        return 5


def recorded(device: Device, path: Path, select: list[str] = SOME, dots: int = 700, seed: int = 4) -> Report:
    return survey(device, select, dots, seed, record=path)


def replayed(path: Path, jobs: int = 1, **asked: int) -> Report:
    return survey(f"replay:{path}", jobs=jobs, **{"dots": 700, "seed": 4, **asked})


@pytest.mark.parametrize(
    ("device", "status", "kind", "jobs"),
    [
        pytest.param(Unlike, "confirmed", "replay", 1, id="gpu"),
        pytest.param(
            *(lambda: simulated_device("h100"), "simulated", "simulated", 2), id="2 processes", marks=pytest.mark.slow
        ),
    ],
)
def test_replay_gives_the_same_report(device: Callable[[], Device], status: str, kind: str, jobs: int, tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    first = recorded(device(), path)
    assert len(first.measured) == 3
    assert {(row.status, row.reason) for row in first.measured} == {(status, "")}
    again = replayed(path, jobs)
    assert content(again) == content(first)
    assert again.device.kind == kind


def test_files_are_the_same_for_the_same_results_and_keep_verification_as_digests(tmp_path: Path) -> None:
    """A hundred times the dot products add next to nothing."""
    for name, dots in (("a", 300), ("b", 300), ("many", 30_000)):
        recorded(Unlike(), tmp_path / name, [FP8.name], dots)
    one, same, many = ((tmp_path / name).read_bytes() for name in ("a", "b", "many"))
    assert one == same
    assert len(many) < len(one) + 300


class Faulty(Unlike):
    """Wrong on random dot products whose C is negative, and on every seventh question another time it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[bytes] = set()

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        d = super().dot(inst, request)
        key = recording.query_key(inst, request, placement)
        if key in self.seen and key[0] % 7 == 0:
            d = d ^ d.dtype.type(1)
        self.seen.add(key)
        if len(request) > 20 and request.a.any(axis=1).all():
            d[request.c >> 31 == 1] ^= 4
        return d


@pytest.mark.slow
def test_faults_are_replayed_too(tmp_path: Path) -> None:
    """Results that change when asked again, and those that differ from the model."""
    path = tmp_path / "r.npz"
    first = recorded(Faulty(), path, [FP8.name])
    (row,) = first.measured
    assert row.status == "unstable"
    assert row.unstable
    assert 0 < row.verification.mismatches < row.verification.compared
    assert row.verification.counterexample is not None
    assert content(replayed(path)) == content(first)


def test_a_query_that_is_sent_again_gets_its_results_in_turn(tmp_path: Path) -> None:
    inst = parse(DENSE)
    request = draw("uniform", inst, np.random.default_rng(0), 4)
    device = RecordedDevice(FakeDevice(spoil=lambda _, d: d + d.dtype.type(next(added))))
    added = iter([0, 0, 1, 1, 2])
    found = [device.dot(inst, request).tolist() for _ in range(5)]
    made = Recording.of(device, "")
    made.announce(device, [inst], {inst.name: inst.name})
    made.add({inst.name: None}, device.take())
    made.save(tmp_path / "r.npz")
    replay = ReplayDevice(tmp_path / "r.npz")
    assert [replay.dot(inst, request).tolist() for _ in range(5)] == found


def test_what_the_device_cannot_measure_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    first = recorded(FakeDevice(), path, [])
    assert [row.status for row in first.instructions] == ["skipped", "confirmed", "confirmed"]
    again = replayed(path)
    assert [row.name for row in again.instructions] == [SPARSE, DENSE, WIDE]
    assert content(again) == content(first)


@pytest.fixture(scope="module")
def of_fp8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "recording.npz"
    recorded(Unlike(), path, [FP8.name])
    return path


@pytest.fixture
def file(of_fp8: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(of_fp8, tmp_path))


run = partial(invoke, "run", "--jobs", "1")


def test_command_line_records_and_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.npz"
    with monkeypatch.context() as patched:
        patched.setattr(survey_run, "open_device", lambda _: Unlike())
        first = run("--device", "cuda:0", "--select", FP8.name, "--dots", "300", "--record", str(path))
    assert first.exit_code == 0
    again = run("--device", f"replay:{path}", "--dots", "300")
    assert (again.exit_code, again.stderr) == (0, "")
    assert again.stdout.startswith("REPLAYED from a recording: nothing was measured now\nFake GPU: ")
    assert "1 instruction replayed in" in again.stdout


@pytest.mark.parametrize("options", [("--dots", "701", "--seed", "4"), ("--dots", "700", "--seed", "5")])
def test_other_options_were_not_recorded(file: Path, options: tuple[str, ...]) -> None:
    result = run("--device", f"replay:{file}", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"accprobe: {file} does not have a result of {FP8.name} that this run needs. `accprobe run --dots 700"
        " --seed 4` of accprobe 0.1.0 recorded it. Use the same options, or record again\n"
    )


def test_a_run_cut_short_keeps_what_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"

    def stop(report: Report, _: list[str]) -> None:
        if report.measured:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        survey(Unlike(), SOME, 700, 4, on_row=stop, record=path)
    again = replayed(path)
    assert len(again.measured) == 1
    assert {row.reason for row in again.instructions if row.status == "skipped"} == {"not in the recording"}


def test_other_expectations_are_refused(file: Path) -> None:
    """Results that were kept as a digest come back for the model that was confirmed, and for no other."""
    device = ReplayDevice(file)
    keys = [key for key, kept in device._recording.exchanges.items() if kept[0][:1] != recording._IN_FULL]
    assert keys
    unlike = Unlike()
    asked: list[tuple[Request, int]] = []

    class Asking(Unlike):
        def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
            if recording.query_key(inst, request, placement) in keys:
                asked.append((request, placement))
            return super().dot(inst, request)

    survey(Asking(), [FP8.name], 700, 4)
    request, place = asked[0]
    d = unlike.dot(FP8, request)
    np.testing.assert_array_equal(device.dot_expecting(FP8, request, d, place), d)
    with pytest.raises(NotRecorded, match="only the differences of these results from another model's"):
        device.dot_expecting(FP8, request, d ^ np.uint32(1), place)
    with pytest.raises(NotRecorded, match="only the differences"):
        device.dot(FP8, request, place)


DAMAGED = "is truncated or damaged, or not a recording of `accprobe run --record`; record again"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda raw: raw[: len(raw) // 2], DAMAGED),
        (lambda raw: raw[:2000] + b"????" + raw[2004:], DAMAGED),
        (lambda raw: archive({"x": np.zeros(1)}), DAMAGED),
        (lambda raw: changed(raw, header=b'{"accprobe recording": 9}'), "reads recordings of version 2, the file has 9"),
        (lambda raw: changed(raw, header=b'{"accprobe recording": 2, "instructions": []}'), DAMAGED),
        (lambda raw: changed(raw, results=b"\0\0"), DAMAGED),
        (lambda raw: changed(raw, header=b"[" * 100_000), DAMAGED),
        (lambda raw: changed(raw, times=b""), DAMAGED),
        (lambda raw: bomb(raw, 1 << 33), "would unpack to 8,192 MiB, and a recording has 64 MiB at most"),
    ],
)
def test_damaged_files(file: Path, spoil: Callable[[bytes], bytes], reason: str) -> None:
    file.write_bytes(spoil(file.read_bytes()))
    result = run("--device", f"replay:{file}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"accprobe: {file}")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def archive(arrays: dict[str, np.ndarray]) -> bytes:
    return recording._packed(arrays)


def bomb(raw: bytes, size: int) -> bytes:
    """Declares so many bytes of its answers."""
    spoilt = io.BytesIO(raw)
    with zipfile.ZipFile(spoilt, "a") as packed:
        for info in packed.infolist():
            info.file_size = size if info.filename == "results.npy" else info.file_size
        packed._didModify = True
    return spoilt.getvalue()


def changed(raw: bytes, **arrays: bytes) -> bytes:
    with np.load(io.BytesIO(raw)) as file:
        kept = {name: file[name] for name in file.files}
    return archive(kept | {name: np.frombuffer(data, np.uint8) for name, data in arrays.items()})


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecordingError, match="pipe is not a regular file"):
        Recording.load(tmp_path / "pipe")


def test_same_function_same_identity() -> None:
    registers, mixed = parse("wgmma.m64n8k32.f32.e4m3.e4m3.rs"), parse("wgmma.m64n8k32.f32.e4m3.e5m2")
    model, other = (DotModel(chain([range(32)], FloatArithmetic(FORMATS["f32"], 13, "RZ", bits))) for bits in (13, 12))
    device = SimulatedDevice({FP8: model, registers: model, mixed: model})
    assert device.identity(FP8) == device.identity(registers) != device.identity(mixed)
    assert SimulatedDevice({FP8: model, registers: other}).identity(registers) != device.identity(FP8)


def test_instructions_with_other_block_scales_are_not_asked_for_one_another() -> None:
    device = open_device("sim:rtx5090")
    fp4 = [inst for inst in device.instructions() if inst.k == 64 and inst.scale and not device.explain_unavailable(inst)]
    assert len(fp4) == 4
    assert len({device.identity(inst) for inst in fp4}) == 3

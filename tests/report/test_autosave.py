"""A growing report in a file that other processes write too, and whose disk may be full."""

from __future__ import annotations

import fcntl
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes import fake_report, float_row
from product_rows import product_data, product_report

from accprobe.cli.reports import save_reports
from accprobe.errors import AccprobeError
from accprobe.report import autosave
from accprobe.report.autosave import Autosave
from accprobe.report.report import Report

FIRST = float_row("mma.sync.m16n8k16.f32.f16.f16.f32", 23, {"HMMA.16816.F32": 1})
SECOND = float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA.64x8x32.F32.E4M3.E4M3": 1})
PRODUCT = product_report(product_data(), run={"jobs": 1, "seconds": 1.0, "selected": 0})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.json"


def saved(path: Path) -> tuple[list[str], list[str]]:
    report = Report.load(path)
    return [row.name for row in report.instructions], [row.name for row in report.products]


def save_at_once(save: Autosave, report: Report) -> None:
    save(report)
    save.finish()


def keep(path: Path, report: Report) -> None:
    with save_reports(path) as save:
        save(report)


def test_two_runs_and_a_product_keep_what_the_others_wrote(path: Path) -> None:
    one, other, third = Autosave(path), Autosave(path), Autosave(path)
    save_at_once(one, fake_report(FIRST))
    save_at_once(other, fake_report(SECOND))
    save_at_once(third, PRODUCT)
    save_at_once(one, fake_report(FIRST | {"seconds": 9.0}))
    assert saved(path) == ([FIRST["name"], SECOND["name"]], ["torch:mm"])
    assert Report.load(path).instructions[0].seconds == 9.0
    assert Report.load(path).run.selected == 2
    assert {entry.name for entry in path.parent.iterdir()} == {"r.json", "r.json~"}


def test_writers_at_once_lose_nothing(path: Path) -> None:
    def write(name: str) -> None:
        data = product_data(name=name)
        save_at_once(Autosave(path), product_report(data, run={"jobs": 1, "seconds": 1.0, "selected": 0}))

    names = [f"mine.py:f{i}" for i in range(6)]
    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(saved(path)[1]) == names


@pytest.mark.parametrize("change", [{"seed": 1}, {"environment": {"driver": "2"}}, {"tool": {"version": "0.0.1"}}])
def test_rows_found_under_other_conditions_go_to_the_file_beside(path: Path, change: dict[str, object]) -> None:
    told: list[str] = []
    one, other = Autosave(path), Autosave(path, told.append)
    save_at_once(one, fake_report(FIRST))
    save_at_once(other, fake_report(SECOND, **change))
    assert (saved(path), saved(Path(f"{path}~"))) == (([SECOND["name"]], []), ([FIRST["name"]], []))
    assert told == [f"{path} had 1 result of another device, seed, version or environment, now in {path}~"]
    save_at_once(one, fake_report(FIRST))
    assert (saved(path), saved(Path(f"{path}~"))) == (([FIRST["name"]], []), ([SECOND["name"]], []))


SKIPPED = fake_report(FIRST | {"status": "skipped", "reason": "no probe"}, seed=1)


@pytest.mark.parametrize("report", [SKIPPED, SKIPPED.with_claims(())])
def test_a_report_without_results_neither_replaces_nor_moves_another(path: Path, report: Report) -> None:
    save_at_once(Autosave(path), fake_report(FIRST))
    save_at_once(Autosave(path), report)
    assert saved(path) == ([FIRST["name"]], [])
    assert not Path(f"{path}~").exists()


def test_a_lock_that_a_dead_process_left_is_taken_and_one_that_is_held_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = path.with_name(".r.json.lock")
    lock.touch()
    save_at_once(Autosave(path), fake_report(FIRST))
    assert not lock.exists()
    monkeypatch.setattr(autosave, "LOCK_SECONDS", 0.05)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AccprobeError, match=r"r.json cannot be written: another process keeps it locked"):
            keep(path, fake_report(SECOND))
    assert saved(path) == ([FIRST["name"]], [])


def test_saves_are_seldom_and_the_last_report_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    save = Autosave(path)
    save(fake_report(FIRST, seed=1))
    save(fake_report(FIRST, seed=2))
    assert Report.load(path).seed == 1
    now[0] += 0.3
    save(fake_report(FIRST, seed=3))
    assert Report.load(path).seed == 3
    save(fake_report(FIRST, seed=4))
    save.finish()
    assert Report.load(path).seed == 4


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Files may have so many bytes, as on a disk that is full then; Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", ["for neither", "for FILE~ alone"])
def test_a_full_disk_leaves_both_files_whole(path: Path, room: str) -> None:
    kept, beside = fake_report(seed=7), fake_report(seed=5)
    kept.save(path)
    beside.save(Path(f"{path}~"))
    size = path.stat().st_size
    sentence = r"^\S+/r.json cannot be written: File too large$"
    room_for = size - 1 if room == "for neither" else size
    with files_end_at(room_for), pytest.raises(AccprobeError, match=sentence):
        keep(path, fake_report(product_data(), seed=7))
    assert Report.load(path) == kept
    assert Report.load(f"{path}~") == (beside if room == "for neither" else kept)
    assert {entry.name for entry in path.parent.iterdir()} == {"r.json", "r.json~"}

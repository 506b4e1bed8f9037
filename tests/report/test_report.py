import stat
import time
from pathlib import Path

import pytest
from broken_reports import BROKEN
from fakes import fake_report, float_row

from accprobe.errors import ReportError
from accprobe.report import recorded
from accprobe.report.autosave import Autosave
from accprobe.report.report import Report


def test_saved_report_loads_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    before = fake_report()
    before.save(path)
    assert Report.load(path) == before


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b"\xef\xbb\xbf" + fake_report().dumps().encode())
    assert Report.load(path) == fake_report()


def test_saving_is_stable_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    fake_report().save(path)
    first = path.read_text()
    Report.load(path).save(path)
    assert path.read_text() == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]


def test_saved_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    fake_report().save(tmp_path / "r.json")
    assert stat.S_IMODE((tmp_path / "r.json").stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


def test_saving_follows_a_link_and_writes_to_a_device(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    fake_report().save(link)
    assert link.is_symlink()
    assert Report.load(target) == fake_report()
    fake_report().save(Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


def test_each_exchange_stands_on_a_line_of_its_own() -> None:
    row = float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA": 1})
    row["evidence"] = {"order": row["evidence"]["alignment_bits"] * 3}
    lines = fake_report(row).dumps().splitlines()
    assert sum(line.count("3f800000") for line in lines) == 3
    assert all(line.count("3f800000") <= 1 for line in lines)


@pytest.mark.parametrize(("text", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_report_is_told_by_file_key_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ReportError) as caught:
        Report.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {reason}")
    assert ("newer" in message) == ("newer" in reason)
    assert "\n" not in message


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(b'{"schema": "\xff\xfe"}')
    with pytest.raises(ReportError, match="not JSON"):
        Report.load(path)


def test_directory_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="cannot be read: Is a directory"):
        Report.load(tmp_path)


def test_recorded_report_is_found_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    fake_report().save(tmp_path / "reports" / "mine.json")
    monkeypatch.setattr(recorded, "data_folder", lambda name: tmp_path / name)
    assert recorded.recorded() == ["mine"]
    assert Report.load("mine") == fake_report()
    with pytest.raises(ReportError, match=r"no recorded report 'min'; did you mean mine\?"):
        Report.load("min")


def test_a_device_is_no_report() -> None:
    with pytest.raises(ReportError, match="sim:h100 is a device; `accprobe run --device sim:h100 -o FILE` makes a report"):
        Report.load("sim:h100")


def test_every_recorded_report_loads() -> None:
    for name in recorded.recorded():
        assert Report.load(name).device.kind == ("cpu" if name.startswith("cpu-") else "cuda")


def test_autosave_saves_seldom_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.json"
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    save = Autosave(path)
    save(fake_report(seed=1))
    save(fake_report(seed=2))
    assert Report.load(path).seed == 1
    now[0] += 0.3
    save(fake_report(seed=3))
    assert Report.load(path).seed == 3
    save(fake_report(seed=4))
    save.finish()
    assert Report.load(path).seed == 4


def test_report_of_a_whole_catalog_stays_small() -> None:
    row = float_row("mma.sync.m16n8k16.f32.f16.f16.f32", 23, {"HMMA.16816.F32": 1})
    row["evidence"] = {f"feature {i}": row["evidence"]["alignment_bits"] * 4 for i in range(13)}
    size = len(fake_report(row).dumps())
    assert 132 * size < 1.5 * 2**20


@pytest.mark.parametrize(
    ("against", "words"),
    [
        ({"contradicting": 7, "results": 9}, "7 answers contradict the model"),
        ({"results": 9}, "no events were looked for"),
        ({"events": {"hit": 3, "possible": 4, "missing": ["tie"]}}, "3 of 4 events were met"),
        ({"events": {"hit": 5, "possible": 4}}, "5 of 4 events were met"),
        ({"tile": {"covered": 3, "total": 512}}, "3 of 512 cells were read"),
        ({"tile": {"covered": 512, "total": 512, "differing": "row 3"}}, "or some differ"),
    ],
)
def test_a_confirmed_row_that_something_speaks_against_is_refused(against: dict[str, object], words: str) -> None:
    row = float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA": 1})
    row["verification"] |= against
    with pytest.raises(ValueError, match=words):
        fake_report(row)


def test_a_confirmed_row_suggests_nothing() -> None:
    row = float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA": 1})
    row["findings"]["order"]["bound"] = "suggested"
    with pytest.raises(ValueError, match=r"yet findings\.order is suggested"):
        fake_report(row)

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import pytest
import readme_blocks

RESULTS = sorted(readme_blocks.RESULTS.glob("*.json"))


@pytest.fixture
def commands() -> ModuleType:
    spec = importlib.util.spec_from_file_location("commands", readme_blocks.ROOT / "benchmarks" / "commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_gpu_is_measured_with_an_empty_cache_and_again_with_that_cache(
    commands: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty: list[bool] = []

    def seconds(arguments: str, **environment: str) -> float:
        assert arguments == "run --device sim:h100"
        folder = Path(environment["ACCPROBE_CACHE_DIR"])
        empty.append(not any(folder.iterdir()))
        (folder / "cubin").touch()
        return 20.0 if empty[-1] else 5.0

    monkeypatch.setattr(commands, "seconds", seconds)
    monkeypatch.setattr("sys.argv", ["commands.py", "--device", "sim:h100", "-o", str(tmp_path / "new" / "r.json")])
    assert commands.main() == 0
    assert empty == [True, False]
    data = json.loads((tmp_path / "new" / "r.json").read_text())
    assert data["host"]["cpu_cores"] == len(os.sched_getaffinity(0))
    assert data["host"]["architecture"] == "sm_90a"
    assert [(r["state"], r["seconds"], r["limit"]) for r in data["results"]] == [
        ("empty cache", 20.0, 30.0),
        ("warm cache", 5.0, 8.0),
    ]
    assert "limit  30.0 s  ratio 0.67" in capsys.readouterr().out


def test_slower_than_the_limit_is_a_failure(commands: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "seconds", lambda arguments, **_: 11.0)
    monkeypatch.setattr("sys.argv", ["commands.py", "--repeat", "1"])
    assert commands.main() == 1


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_recorded_results_are_within_the_limits(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["results"]
    assert all(result["seconds"] <= result["limit"] for result in data["results"])

"""`accprobe health`: what it prints, writes and ends with, on simulated GPUs, healthy and faulty."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import invoke
from golden import HEALTH_FILE, schema_text
from jsonschema import Draft202012Validator

from accprobe.health import check
from accprobe.health.bench import CpuBench, Turn
from accprobe.health.check import check_gpu
from accprobe.health.outcome import GpuOutcome, HealthOutcome, OnOutcome
from accprobe.health.plan import CheckPlan
from accprobe.render.monitoring import health_prometheus


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """One GPU after the other, in this process: processes have tests of their own."""

    def check_host(names: list[str], plan: CheckPlan, told: OnOutcome) -> None:
        for index, name in enumerate(names):
            for so_far in check_gpu(name, CheckPlan(plan.seconds, plan.seed, plan.like, again=10)):
                told(index, so_far)

    monkeypatch.setattr(check, "check_host", check_host)


@pytest.fixture
def _later(monkeypatch: pytest.MonkeyPatch) -> None:
    """sim:nope is seen to be none only when it is opened, as a GPU that is lost."""
    monkeypatch.setattr(check, "check_named", lambda name: None)


health = partial(invoke, "health", "--minutes", "0.005", columns=160)


def test_a_healthy_gpu() -> None:
    result = health("--device", "sim:h100")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:2] == ["SIMULATED: the devices are models, no hardware was checked", ""]
    named = [line.split()[0] for line in lines if line[:1].isalpha()]
    assert named[3:9] == ["fp8", "f16", "bf16", "tf32", "int8", "f64"]
    assert re.fullmatch(r"sim:h100: healthy: 0 mismatches in [\d,]+ results", lines[2])
    assert lines[-2:] == ["sim:h100 simulated H100", "compared with the models of sim:h100"]
    assert result.stderr == ""


def test_a_faulty_one_among_healthy_ones() -> None:
    result = health("--device", "sim:h100,faulty:h100")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1] == "1 of 2 GPUs faulty: faulty:h100, SM 2"
    assert result.stdout.count("! SM 2: ") == 1  # one entry for mismatches in the same bit
    assert "! SM 2: wgmma.m64n256k32.f32.e4m3.e4m3, " in result.stdout
    assert "differs 10 of 10 times when repeated" in result.stdout
    assert re.search(r"minimal operands: k 3: 0x\w\w .*; C 0x00000000 \(0\) → 0x\w{8} .*, expected 0x\w{8}", result.stdout)
    assert re.search(r"^faulty:h100: DIFFERS: [\d,]+ of [\d,]+ results on SM 2$", result.stdout, re.MULTILINE)


@pytest.mark.usefixtures("_later")
def test_json_is_as_its_schema_says(tmp_path: Path) -> None:
    file = tmp_path / "health.json"
    result = health("--device", "sim:h100,faulty:a100,sim:nope", "-o", str(file))
    assert result.exit_code == 1
    data = json.loads(file.read_text())
    Draft202012Validator(json.loads(HEALTH_FILE.read_text())).validate(data)
    assert [gpu["status"] for gpu in data["gpus"]] == ["healthy", "differs", "failed"]
    assert {gpu["kind"] for gpu in data["gpus"]} == {"simulated", ""}
    assert data["gpus"][1]["mismatches"][0]["place"]["sm"] == 2
    assert HealthOutcome.model_validate_json(file.read_text()).differs
    assert "sim:nope: no published model of 'sim:nope'" in result.stderr


def test_the_schema_is_the_published_one() -> None:
    assert HEALTH_FILE.read_text(encoding="utf-8") == schema_text(HEALTH_FILE), "python tests/support/golden.py writes it again"


def test_a_unit_that_compared_nothing_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = CpuBench.turn

    def idle(self: CpuBench, seconds: float) -> Turn:
        return Turn(seconds=seconds) if self.inst.a.name == "f64" else turn(self, seconds)

    monkeypatch.setattr(CpuBench, "turn", idle)
    result = health("--device", "sim:h100", "--format", "json")
    assert result.exit_code == 2
    assert result.stderr.endswith("accprobe: sim:h100: nothing was compared in 0.3 s of f64; give it more time\n")
    (gpu,) = json.loads(result.stdout)["gpus"]
    assert (gpu["status"], gpu["finished"]) == ("failed", False)


@pytest.mark.usefixtures("_later")
def test_junit() -> None:
    result = health("--device", "sim:a100,faulty:h100,sim:nope", "--format", "junit")
    suites = ElementTree.fromstring(result.stdout).findall("testsuite")
    assert [(int(s.get("tests", "")), int(s.get("failures", "")), int(s.get("errors", ""))) for s in suites] == [
        (5, 0, 0),
        (6, 6, 0),
        (1, 0, 1),
    ]
    assert "SM 2: " in (suites[1].findtext("testcase/failure") or "")


def test_prometheus() -> None:
    result = health("--device", "sim:h100,faulty:h100", "--format", "prometheus")
    lines = result.stdout.splitlines()
    for line in lines:
        assert re.fullmatch(r'# (HELP|TYPE) accprobe_\w+ .+|accprobe_\w+\{(\w+="[^"]*",?)+\} [\d.]+', line), line
    healthy = {line.split('"')[1]: line.split()[-1] for line in lines if line.startswith("accprobe_healthy{")}
    assert healthy == {"sim:h100": "1", "faulty:h100": "0"}
    assert {line.split()[-1] for line in lines if line.startswith("accprobe_finished{")} == {"1"}
    assert sum('sm="2"' in line for line in lines) == 1


def test_labels_are_escaped() -> None:
    odd = GpuOutcome.unopened('a"b\\c').model_copy(update={"name": "two\nlines"})
    assert '{device="a\\"b\\\\c",name="two\\nlines",' in health_prometheus(HealthOutcome.of("quick", 1 / 3, [odd]))


def test_an_interruption_keeps_what_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(names: list[str], plan: CheckPlan, told: OnOutcome) -> None:
        for so_far in check_gpu(names[0], plan):
            told(0, so_far)
            if so_far.dots:
                raise KeyboardInterrupt

    monkeypatch.setattr(check, "check_host", interrupted)
    file = tmp_path / "health.json"
    result = health("--device", "faulty:h100", "-o", str(file))
    assert result.exit_code == 1
    (gpu,) = json.loads(file.read_text())["gpus"]
    assert gpu["dots"] > 0
    assert not gpu["finished"]
    assert re.search(r"accprobe: interrupted: [\d,]+ results were compared, [\d,]+ differ", result.stderr)

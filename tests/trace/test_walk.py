"""The walk through `accprobe trace` in docs/questions.md: its program and command give the output that stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import invoke

pytest.importorskip("torch")


PAGE = Path(__file__).parents[2] / "docs" / "questions.md"

WALK = re.compile(r"```py\n(# model\.py\n.*?)```\n\n```sh\naccprobe (.*?)\n```\n\n```\n(.*?)```\n", re.DOTALL)


def test_the_walk_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = WALK.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    program, command, output = found.groups()
    (tmp_path / "model.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    result = invoke(*command.split())
    assert result.exit_code == 1
    assert [line.rstrip() for line in result.output.splitlines()] == output.splitlines()
    assert invoke(*command.split()[:3], "--batch", "1,8").output.startswith("equal: 3 operations")
    assert invoke(*command.split()[:3], "--batch", "1,80").exit_code == 2  # it has 8 sequences
    fixed = invoke(*command.split(), "--fix", columns=200)
    assert "no change that accprobe tries makes both sides equal" in " ".join(fixed.output.split())

"""Compiling the sweep's kernel, where Triton or Python beneath it fails."""

from __future__ import annotations

import re

import pytest

from accprobe.sweep.configurations import configurations
from accprobe.sweep.kernel import PARSES, compile_configurations

compiler = pytest.importorskip("triton.compiler")
MISMATCH = "AST constructor recursion depth mismatch (before=36, after=80)"


@pytest.mark.parametrize(("failures", "reason"), [(PARSES - 1, ""), (PARSES, f"Triton .* rejects it: {re.escape(MISMATCH)}")])
def test_a_parser_that_fails_now_and_then_is_no_finding(failures: int, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile, left = compiler.compile, [SystemError(MISMATCH)] * failures

    def failing(*args: object, **options: object) -> object:
        if left:
            raise left.pop()
        return compile(*args, **options)

    monkeypatch.setattr(compiler, "compile", failing)
    (compiled,) = compile_configurations(configurations(["f16"], [64], [4]), "sm_90a")
    assert (compiled.kernel is None) == bool(reason)
    assert re.fullmatch(reason, compiled.reason)

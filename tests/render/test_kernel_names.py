"""Names of kernels: demangled, without parameters, and short."""

from __future__ import annotations

import pytest

from accprobe.render.subjects import sass
from accprobe.render.subjects.sass import LONGEST, demangled, short_name

MANGLED = (
    "_ZN6marlin6MarlinI13__nv_bfloat16Ll2814749767172868ELi128ELi1ELi8ELi4ELb0ELi4ELi8ELb0EEEvPK4int4S4_PS2_S5_S4_S4_PKtS4_PKiii"
    "iiPibbi"
)


@pytest.fixture(autouse=True)
def _forget() -> None:
    demangled.cache_clear()
    short_name.cache_clear()


@pytest.mark.parametrize("name", ["gemm", "nvjet_sm90_qqtst_64x48_128x15_2x4_h_bz_TNT", "_Z", "_Zbroken"])
def test_what_is_not_mangled_stays(name: str) -> None:
    assert short_name(name) == name


def test_mangled_names() -> None:
    pytest.importorskip("cxxfilt")
    expected = "marlin::Marlin<__nv_bfloat16, 2814749767172868l, 128, 1, 8, 4, false, 4, 8, false>"
    assert short_name(MANGLED) == expected
    assert demangled(MANGLED).startswith(f"void {expected}(int4 const*")


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("f(int (*)(float), int)", "f"),
        ("void (anonymous namespace)::g<(a::B)3>(int)", "g<(a::B)3>"),
        ("void a::k<b<c<int> > >(d<e>)", "a::k<b<c<int>>>"),
        (f"void {'x' * 200}(int)", f"{'x' * (LONGEST - 1)}…"),
    ],
)
def test_short_names(full: str, short: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "demangled", lambda name: full)
    assert short_name("_Zx") == short

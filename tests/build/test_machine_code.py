"""Machine code of processors' dot products, and the processor's flags."""

from __future__ import annotations

import platform

import pytest

from accprobe.build import machine_code, processor
from accprobe.isa.instructions import parse
from accprobe.isa.processors import MNEMONICS, Mnemonic

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are of x86")


def test_every_mnemonic_is_assembled() -> None:
    known = [mnemonic for mnemonic in MNEMONICS if machine_code.explain_unsupported(mnemonic) is None]
    assert len({machine_code.load_loop(mnemonic).code for mnemonic in known}) == len(known)


def test_an_llvm_that_is_too_old_is_refused() -> None:
    young = Mnemonic("NEW", "amx", "m16n16k32", "f32 f16 f16", ("amx_tile",), llvm=999)
    assert machine_code.explain_unsupported(young).endswith("and 999 is the first that knows NEW")


def test_flags_are_read_as_linux_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"flags": "fpu avx512f avx512_bf16", "model name": "A chip", "cpu family": "25", "model": "17"}
    monkeypatch.setattr(processor, "_field", lambda key: told.get(key, ""))
    monkeypatch.setattr(processor, "architecture", lambda: "x86_64")
    known = {each.mnemonic: each for each in MNEMONICS}
    assert processor.lacking(known["VDPBF16PS"]) == []
    assert processor.lacking(known["VPDPBUSD"]) == ["avx512_vnni"]
    monkeypatch.setattr(processor, "architecture", lambda: "aarch64")
    assert processor.lacking(known["VDPBF16PS"]) == ["x86_64"]
    assert (processor.name(), processor.facts()) == ("A chip", {"cpu_family": 25, "model": 17})


def test_each_instruction_is_known_by_its_mnemonic() -> None:
    for mnemonic in MNEMONICS:
        inst = parse(mnemonic.mnemonic.lower())
        assert parse(inst.name) is inst
        assert (inst.mnemonic, inst.satfinite) == (mnemonic.mnemonic, mnemonic.saturates)
        assert [inst.d.name, inst.a.name, inst.b.name] == mnemonic.types.split()

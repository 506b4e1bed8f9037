"""The published models, alone and against recorded results of real matrix units if they are on this disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hardware_vectors import VECTORS, Recorded, compare, find_vectors, needs_vectors, published_models

from accprobe.build.lowerings import is_ordinary
from accprobe.isa.instructions import catalog
from accprobe.model.published import CHIPS, chip, known_models
from accprobe.model.tree import Arithmetic
from accprobe.report.names import named_models

SETS = find_vectors(VECTORS) if (VECTORS / "H100").is_dir() else []
IN_F32 = [recorded for recorded in SETS if recorded.result == "fp32"]


def mismatches(recorded: Recorded, change: Callable[[Arithmetic], Arithmetic]) -> int:
    """Count mismatches of the best model with a changed arithmetic."""
    known = {inst: model.with_arithmetic(change) for inst, model in published_models(recorded.gpu).items()}
    return compare(recorded, known)[0].mismatches


@needs_vectors
@pytest.mark.parametrize("recorded", SETS, ids=lambda recorded: recorded.name)
def test_models_agree_with_real_hardware(recorded: Recorded) -> None:
    done, *others = compare(recorded, published_models(recorded.gpu))
    assert (done.dots, done.mismatches) == (5000, 0)
    group = recorded.gpu == "H100" and recorded.operand in ("E4M3", "E5M2") and recorded.result == "fp32"
    assert (done.inst.family.name, done.without_c) == (("wgmma", True) if group else ("mma.sync", False))
    assert all(other.mismatches > 1000 for other in others)


@needs_vectors
@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("recorded", IN_F32, ids=lambda recorded: recorded.name)
def test_vectors_contradict_other_alignment_bits(recorded: Recorded, change: int) -> None:
    def changed(arithmetic: Arithmetic) -> Arithmetic:
        bits = getattr(arithmetic, "alignment_bits", None)
        return arithmetic if bits is None else replace(arithmetic, alignment_bits=bits + change)

    assert mismatches(recorded, changed) > 0


@pytest.mark.parametrize("name", CHIPS)
def test_every_model_has_a_source_and_an_opcode(name: str) -> None:
    for inst, known in known_models(name).items():
        assert inst in catalog(chip(name).architecture)
        assert not inst.sparse
        assert any(word in known.source for word in ("Khattak", "MMA-Sim", "PTX ISA", "IEEE 754"))
        assert known.lowering.source == "known model"
        assert known.lowering.matrix or is_ordinary(known.lowering.sequence)
        assert bool(known.lowering.matrix) != ("IEEE 754" in known.source)
        assert set(known.lowering.matrix) <= {opcode for opcode, _ in known.lowering.sequence}
        assert known.lowering.cubin_sha256 is None


def test_sparse_instructions_add_the_stored_products() -> None:
    """The H200 was measured to do so."""
    measured = named_models("h200")
    dense = {replace(inst, name=""): inst for inst in measured if not inst.sparse}
    sparse = {inst: dense[replace(inst.stored, name="")] for inst in measured if inst.sparse}
    assert len(sparse) > 100
    assert all(measured[inst] == measured[same] for inst, same in sparse.items())

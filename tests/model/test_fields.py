"""The records of the model's fields match the dataclasses, and everything else is derived from them."""

from __future__ import annotations

from dataclasses import fields, replace
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from inferred import FP8, KNOWN
from pydantic import TypeAdapter

from accprobe.evaluate.cuda import source
from accprobe.isa.formats import Format
from accprobe.model.fields import FEATURES, fields_of
from accprobe.model.notation import DotModelField, dot_json
from accprobe.model.record import Field, Numbers, Words
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum, IntegerArithmetic

KINDS = (FloatArithmetic, IntegerArithmetic, DotModel)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_record_with_the_values_of_its_type(kind: type[Any]) -> None:
    hints = get_type_hints(kind)
    described = fields_of(kind)
    assert [f.name for f in fields(kind) if hints[f.name] not in (Format, FusedSum)] == list(described)
    for name, field in described.items():
        if get_origin(hints[name]) is Literal:
            assert field.words == get_args(hints[name])
        else:
            allows_none = isinstance(field.values, Numbers) and field.values.none is not None
            assert hints[name] == (int | None if allows_none else int)
            assert isinstance(hints[name], UnionType) == allows_none


def test_every_field_record_belongs_to_a_field() -> None:
    of_kinds = {name for kind in KINDS for name in fields_of(kind)}
    assert {name for name, record in FEATURES.items() if isinstance(record, Field)} == of_kinds


def test_the_default_word_is_first_and_has_code_zero() -> None:
    """Compiled code and the alternatives to exact sums rely on it."""
    usual = replace(KNOWN[FP8].root.arithmetic, result_rounding="RZ")
    defaults = FloatArithmetic(usual.result, 13, "RZ", 13)
    for name, field in fields_of(FloatArithmetic).items():
        if isinstance(field.values, Words):
            assert getattr(defaults, name) == field.words[0]
            assert field.values.code(field.words[0]) == 0


def test_tacit_fields_are_written_only_at_unusual_values() -> None:
    usual = KNOWN[FP8]
    assert "tininess_detected" not in str(dot_json(usual))
    other = usual.with_arithmetic(lambda has: replace(has, tininess_detected="before rounding"))
    assert "'tininess_detected': 'before rounding'" in str(dot_json(other))
    assert TypeAdapter(DotModelField).validate_python(dot_json(other)) == other
    assert source.not_compiled(usual) == ""
    assert source.not_compiled(other) == "tininess_detected before rounding"

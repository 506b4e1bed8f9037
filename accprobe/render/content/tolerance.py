"""What a test of a product may ask, and what it notices, in words: every output form has the same."""

from __future__ import annotations

from collections.abc import Iterator

from accprobe.budget.account import data_name
from accprobe.budget.tolerance import ATOL, CALC_DIFF, Advised
from accprobe.isa.formats import FORMATS
from accprobe.render.content.phrases import Phrase

TEST_TITLES = {"calc_diff": f"calc_diff\n< {CALC_DIFF:g}", "atol": f"\natol = {ATOL:g}", "bound": "bound of\neach element"}

THEMSELVES = "(none: the arithmetic itself)"


def tolerance_title(found: Advised) -> str:
    """What is asked, on a line."""
    asked = found.asked
    promoted = f"promoted every {asked.promote_every}" if asked.promote_every else "never promoted"
    split = f", split K {asked.split_k}" if asked.split_k > 1 else ""
    scaled = f", scales of {asked.scale}" if asked.scale else ""
    return f"{asked.accumulation.name}: K = {asked.k}, {promoted}{split}, result {asked.model.result}{scaled}"


def tolerance_facts(found: Advised) -> Iterator[tuple[str, str]]:
    """Names and what is told of each."""
    asked = found.asked
    yield "inputs", f"{data_name(asked.data)}, {asked.m} x {asked.n} outputs, seed {asked.seed}"
    anything = "" if found.over_any_sum is None else f"; of any operands at this K at most {found.over_any_sum:.2g}"
    yield "allowed", f"{found.over_sum:.2g} of sum |a·b|{anything}"
    relative = "" if found.relative is None else f", {found.relative:.2g} of the root mean square of the results"
    yield "atol", f"{found.largest:.3g} for these inputs{relative}"
    yield "used", f"the arithmetic itself comes to {found.observed:.2g} of an element's bound"


def kill_rows(found: Advised) -> Iterator[tuple[Phrase, ...]]:
    """The mistake, what each test makes of it, and other inputs that would show it."""
    alarms = (Phrase("fails", "bad") if name in found.false_alarms else Phrase("passes", "good") for name in TEST_TITLES)
    yield Phrase(THEMSELVES, "quiet"), *alarms, Phrase("")
    for row in found.kill_table:
        verdicts = (Phrase("killed", "good") if row.by[name] else Phrase("lives", "bad") for name in TEST_TITLES)
        others = "" if row.by["bound"] else ", ".join(row.noticed_with) or "none of the kinds"
        yield Phrase(row.mistake), *verdicts, Phrase(others)


def tolerance_words(found: Advised) -> Iterator[str]:
    """What follows."""
    for name in found.false_alarms:
        title = " ".join(TEST_TITLES[name].split())
        yield f"With these inputs {title} fails for the arithmetic itself: that it kills a mistake says nothing."
    for row in found.kill_table:
        if not row.by["bound"]:
            others = f"; {' or '.join(row.noticed_with)} data would show it" if row.noticed_with else ""
            yield f"With these inputs no bound of this arithmetic shows '{row.mistake}'{others}."
    like = found.asked.accumulation.name
    every = f", promote_every={found.asked.promote_every}" if found.asked.promote_every else ""
    split = f", split_k={found.asked.split_k}" if found.asked.split_k > 1 else ""
    out = found.asked.model.result
    rounded = f', out="{out}"' if out is not FORMATS["f32"] else ""
    scales = ", scales=(scales_of_a, scales_of_b)" if found.asked.scale else ""
    yield f'In a test: assert_matmul_close(got, a, b, like="{like}"{every}{split}{rounded}{scales}), of accprobe.testing.'

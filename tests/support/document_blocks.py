"""The parts of README.md and docs/ that other files know better: `python tests/support/document_blocks.py` writes them again.

Each stands between `<!-- NAME: from SOURCE -->` and `<!-- end -->`; `tests/docs` checks that writing changes nothing.
"""

from __future__ import annotations

import re
from functools import partial

import accuracy_blocks
import benchmark_blocks
import printed_blocks
import report_blocks
import result_blocks
import source_blocks
from block_forms import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- (\w+): from [^\n]+ -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

BLOCKS = {
    "drift_in_short": accuracy_blocks.drift_in_short,
    "accuracy_made": accuracy_blocks.accuracy_made,
    "same_sign": accuracy_blocks.same_sign,
    "zero_mean": accuracy_blocks.zero_mean,
    "on_hardware": accuracy_blocks.on_hardware,
    "intervals": accuracy_blocks.intervals,
    "granularity": accuracy_blocks.granularity,
    "attention_over_keys": accuracy_blocks.attention_over_keys,
    "ran": report_blocks.ran,
    "health_rates": result_blocks.health_rates,
    "sparse_plans": partial(report_blocks.plans, "sparse-products-h200"),
    "more_plans": partial(report_blocks.plans, "more-products-h200"),
    "triton_cache": printed_blocks.triton_cache,
    "headline": printed_blocks.headline,
    "products_of_gpus": printed_blocks.products_of_gpus,
    "rooms": source_blocks.rooms,
    "commands": source_blocks.commands,
    "sweep": report_blocks.sweep,
    "excerpt": printed_blocks.excerpt,
    "measured": report_blocks.measured,
    "found": report_blocks.found,
    "detail": printed_blocks.detail,
    "speed": result_blocks.speed,
    "verified_rows": result_blocks.verified_rows,
    "processors": report_blocks.processors,
    "coverage": report_blocks.coverage,
    "explained": report_blocks.explained,
    "plans": partial(report_blocks.plans, "products-h200"),
    "drawn_plans": result_blocks.drawn_plans,
    "ways_of_counting": benchmark_blocks.ways_of_counting,
    "failures": benchmark_blocks.failures,
    "gpus": benchmark_blocks.gpus,
    "library": benchmark_blocks.library,
    "evaluators_on_gpus": benchmark_blocks.evaluators_on_gpus,
    "health_planted": benchmark_blocks.health_planted,
    "traces": benchmark_blocks.traces,
    "bounds_held": benchmark_blocks.bounds_held,
    "kill_table": printed_blocks.kill_table,
}


def written(text: str) -> str:
    """A page with every block as its source has it now."""
    return BLOCK.sub(lambda match: match[1] + BLOCKS[match[2]]() + match[4], text)


def names(text: str) -> list[str]:
    """The blocks that are there."""
    return [match[2] for match in BLOCK.finditer(text)]


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")

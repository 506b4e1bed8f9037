"""A planted product in a report, on the terminal and in a check; differences inside fused sums."""

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from planted_boxes import PlantedBox
from planted_plans import NAMED
from product_rows import product_data, product_model, product_report

from accprobe.cli import main
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import row
from accprobe.gemm.versus import versus
from accprobe.model.product import multiply_add
from accprobe.report.products import ProductRow
from accprobe.report.report import Report


def test_dropped_tail_is_kept_shown_and_checked(tmp_path: Path) -> None:
    outcome = characterise(PlantedBox(NAMED["dropped tail of one chain"]), elements=1 << 12)
    found = row(outcome, "planted:tail", {"fast": True}, libraries={"numpy": np.__version__}, seconds=1.0)
    assert found.status == "confirmed"
    report = product_report().model_copy(update={"products": (found,)})
    path = tmp_path / "r.json"
    report.save(path)
    assert Report.load(path) == report
    shown = CliRunner().invoke(main, ["show", str(path)]).stdout
    assert shown.index("DROPPED PRODUCTS: 8 missing: k = 512-519, of 520") < shown.index("every k")
    checked = CliRunner().invoke(main, ["check", str(path), "--require", "planted:tail fast=True: each_product_once == yes"])
    assert checked.exit_code == 1
    assert "found no (8 missing: k = 512-519)" in checked.stdout


def test_what_differs_inside_a_sum_is_said_where_no_finding_does() -> None:
    models = [product_model(of=multiply_add(product_bits=bits)) for bits in (None, 23)]
    one, other = (ProductRow.model_validate_json(json.dumps(product_data(model))) for model in models)
    found = versus(one, other.model_copy(update={"callable": "numpy:matmul"}))
    assert not found.same
    assert found.sentence == (
        "torch:mm -> numpy:matmul changed the plan, inside a fused sum: product bits none -> 23; product rounding none -> RNE"
    )

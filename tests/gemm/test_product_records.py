"""What is found of a planted product, as the report has it and every form tells it."""

from pathlib import Path

import numpy as np
from click.testing import CliRunner
from planted_plans import NAMED
from planted_products import Planted
from planted_sums import KINDS
from product_rows import product_report

from accprobe.cli import main
from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.characterise import characterise
from accprobe.gemm.row import row
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits
from accprobe.report.report import Report


class PlantedBox:
    """A planted product without scales, as it is asked."""

    def __init__(self, plan: Planted) -> None:
        self._plan = plan
        self.spec = Spec(plan.m, plan.n, plan.k, FORMATS[plan.a], FORMATS[plan.b], FORMATS[plan.out])

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        of_a, of_b = a.view(KINDS[self._plan.a].dtype), np.ascontiguousarray(b.view(KINDS[self._plan.b].dtype).T)
        return np.ascontiguousarray(self._plan(of_a, of_b)).view(self.spec.out.dtype)


def test_dropped_tail_is_kept_shown_and_checked(tmp_path: Path) -> None:
    outcome = characterise(PlantedBox(NAMED["dropped tail"]), elements=1 << 12)
    found = row(outcome, "planted:tail", {"fast": True}, libraries={"numpy": np.__version__}, seconds=1.0)
    assert found.status == "confirmed"
    report = product_report().model_copy(update={"products": (found,)})
    path = tmp_path / "r.json"
    report.save(path)
    assert Report.load(path) == report
    shown = CliRunner().invoke(main, ["show", str(path)]).stdout
    assert shown.index("DROPPED PRODUCTS: 40 missing: k = 512-551, of 552") < shown.index("every k")
    checked = CliRunner().invoke(main, ["check", str(path), "--require", "planted:tail fast=True: each_product_once == yes"])
    assert checked.exit_code == 1
    assert "found no (40 missing: k = 512-551)" in checked.stdout

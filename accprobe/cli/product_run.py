"""Measurements of `accprobe gemm` and `accprobe reduce`: finished rows, and the callable that is being measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from accprobe.cli.output import print_message
from accprobe.errors import AccprobeError
from accprobe.render.progress import PERCENT, Show

if TYPE_CHECKING:
    from accprobe.budget.data import OwnData
    from accprobe.callables.epilogues import Epilogue
    from accprobe.callables.opening import Opened, ProductRequest
    from accprobe.callables.operands import DrawOwn
    from accprobe.callables.spec import Spec
    from accprobe.gemm.findings import ProductOutcome
    from accprobe.isa.formats import Bits
    from accprobe.records.products import KernelRecord, ProductRow
    from accprobe.report.report import Report

ELEMENTS, CALLS = {"cpu": 1 << 18, "cuda": 1 << 22}, {"cpu": 1 << 12, "cuda": 1 << 12}
"""Default number of fresh elements of a product, and the largest number of calls for them."""

ROWS, ROW_CALLS = {"cpu": 1 << 18, "cuda": 1 << 20}, {"cpu": 1 << 14, "cuda": 1 << 17}
"""Default number of fresh results of a reduction, and the largest number of calls for them."""


@dataclass(frozen=True)
class ProductSetting:
    """One callable with one shape and one value of each option."""

    callable: str
    request: ProductRequest
    options: dict[str, Any]
    arrays: str | None


ONLY_IN_REPORT = ("probed", "device", "kernels", "verified", "tested on")
"""Labels of lines of a row that are not printed while it is measured."""


@dataclass
class Measurement:
    """The product or reduction being measured. outcome: results so far, None at the start; shown: printed lines by label."""

    setting: ProductSetting
    opened: Opened
    outcome: ProductOutcome | None = None
    finished: bool = False
    shown: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    @cached_property
    def libraries(self) -> dict[str, str]:
        from accprobe.gemm.machine import library_versions

        return library_versions(self.opened.adapter.library)

    @property
    def title(self) -> str:
        spec = self.opened.adapter.spec
        return f"{self.setting.callable} {f'{spec.n}x{spec.k}' if self.setting.request.reduced else spec.shape}"

    def row(self, kernels: tuple[KernelRecord, ...] = ()) -> ProductRow:
        """Return the record of the results so far."""
        from accprobe.gemm.findings import row

        assert self.outcome is not None
        seconds, opened = round(time.perf_counter() - self.started, 3), self.opened
        device, remarks = device_in_words(opened), opened.remarks
        if opened.ineffective:
            remarks = (*remarks, _without_effect(opened.ineffective))
        measured = {"kernels": kernels, "libraries": self.libraries, "seconds": seconds, "device": device, "remarks": remarks}
        found = row(self.outcome, self.setting.callable, opened.options, getattr(opened.adapter, "record", None))
        reduction = self.setting.request.reduced is not None
        factor = (opened.adapter.spec.a_exponent or 0) if reduction else 0
        more = {"probed_part": opened.probed_part, "kind": "reduction" if reduction else "product", "factor_exponent": factor}
        return found.model_copy(update=measured | more)

    def on_found(self, outcome: ProductOutcome) -> None:
        """Keep the results so far, and print each new line on a terminal."""
        self.outcome = outcome
        if not sys.stderr.isatty():
            return
        from accprobe.render.subjects.products import lines, plans

        row = self.row()
        regions = [(f"{region.where}: ", line) for region, several in plans(row) for line in several]
        for where, (name, said) in [*(("", line) for line in lines(row)), *regions]:
            label, text = f"{where}{name}", said.text
            if name not in ONLY_IN_REPORT and self.shown.get(label) != text:
                self.shown[label] = text
                print_message(f"{self.title}: {label}: {text}")


@dataclass
class ProductRun:
    """The rows so far. first: the first product; its formats are the defaults of the others. sentences: comparisons of rows.
    not_read: why kernels are unknown. measured: the current product. first_results: of the calls that opened each callable,
    by its name, options and `Spec` (shape and formats); all results of one key must be equal.
    """

    elements: int | None
    seed: int
    device: str | None
    data: OwnData | None = None
    report: Report | None = None
    first: Spec | None = None
    rows: list[ProductRow] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    not_read: dict[str, None] = field(default_factory=dict)
    differs: bool = False
    sweeping: bool = False
    measured: Measurement | None = None
    announced: set[str] = field(default_factory=set)
    first_results: dict[str, list[Bits]] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    @property
    def wrong(self) -> bool:
        once = (region.findings.get("each_product_once") for row in self.rows for region in row.regions)
        return self.differs or not all(row.holds for row in self.rows) or any(x is None or x.value != "yes" for x in once)

    def add(self, row: ProductRow, compare: bool = True) -> Report:
        """Add a row and return the report. compare: describe how it differs from the first row."""
        from accprobe.compare.pairs import versus

        if self.rows and compare and not self.sweeping:
            same, sentence = versus(self.rows[0], row)
            self.sentences.append(sentence)
            self.differs |= not same
        self.rows.append(row)
        assert self.report is not None
        seconds = round(time.perf_counter() - self.started, 3)
        run = self.report.run.model_copy(update={"seconds": seconds})
        self.report = self.report.model_copy(update={"claims": tuple(self.rows), "run": run})
        return self.report

    def open(self, setting: ProductSetting) -> Opened:
        """Open and check the callable. Raises AccprobeError, also where it runs on another device than those before."""
        from accprobe.callables.opening import open_callable
        from accprobe.composites.adapter import open_composite
        from accprobe.composites.steps import COMPOSITES
        from accprobe.gemm.machine import empty_report

        request = setting.request.completed(self.first) if self.first else setting.request
        if request.reduced and setting.callable in COMPOSITES:
            opened = open_composite(setting.callable, request, setting.options, self.device, setting.arrays)
        else:
            opened = open_callable(setting.callable, request, setting.options, self.device, setting.arrays)
        opened.adapter.check()
        key = f"{setting.callable} {setting.options} {opened.adapter.spec}"
        opened.adapter.before = self.first_results.get(key, []) + opened.adapter.before
        self.first_results[key] = opened.adapter.before
        self.first = self.first or opened.adapter.spec
        empty = empty_report(opened.adapter.library, self.seed)
        if self.report is not None and self.report.device != empty.device:
            raise AccprobeError(
                f"{setting.callable} runs on {empty.device.name}, the callables before on {self.report.device.name};"
                " a report has one device: give --device"
            )
        self.report = self.report or empty
        self._announce(opened)
        return opened

    def _announce(self, opened: Opened) -> None:
        """Say once where the CPU replaces a GPU, and which options have no effect there."""
        from accprobe.build import driver

        library, clauses = opened.adapter.library, []
        if self.device is None and library.device == "cpu" and library.name == "torch":
            count, why = driver.gpus()
            why = "the installed torch cannot use a GPU" if count else f"no GPU found ({why})"
            clauses.append(f"{why}: {opened.adapter.name} runs on {device_in_words(opened)}")
        if opened.ineffective:
            clauses.append(_without_effect(opened.ineffective))
        if (sentence := "; ".join(clauses)) and sentence not in self.announced:
            self.announced.add(sentence)
            print_message(sentence)

    def open_each(self, settings: Sequence[ProductSetting]) -> None:
        """Open each of several callables before the first is measured. Raises as `open`."""
        firsts = {setting.callable: setting for setting in reversed(settings)}
        if len(firsts) > 1:
            for setting in reversed(firsts.values()):
                self.open(setting)

    def measure(self, setting: ProductSetting, show: Show) -> ProductRow:
        """Measure a product and return its row."""
        from accprobe.composites.adapter import CompositeAdapter
        from accprobe.composites.search import characterise_composite
        from accprobe.gemm.characterise import characterise
        from accprobe.gemm.epilogue import infer_epilogue
        from accprobe.gemm.machine import kernels_of
        from accprobe.gemm.verification import evaluator_of

        opened = self.open(setting)
        called, measured = opened.adapter, Measurement(setting, opened)
        self.measured = measured
        elements = self.elements or usual_elements(called.spec, called.library.device, setting.request.reduced is not None)

        def progress(name: str, part: float) -> None:
            show(int(PERCENT * part), PERCENT, f"{measured.title}: {name}")

        if isinstance(called, CompositeAdapter):
            elements = self.elements or called.limit_elements(elements)
            measured.outcome = characterise_composite(called, elements, self.seed, progress)
        else:
            measured.outcome = characterise(
                called,
                elements,
                self.seed,
                evaluator_of(called.library.device),
                progress,
                called.before,
                measured.on_found,
                self._drawing(called.spec),
            )
            if called.epilogue is not None:
                progress("epilogue", 0.0)
            infer_epilogue(called, measured.outcome, self.seed)
            _explain_activation(called.epilogue, measured.outcome)
        measured.finished = True
        kernels, unknown = kernels_of(called)
        self.not_read |= {unknown: None} if unknown else {}
        found, self.measured = measured.row(kernels), None
        return found

    def _drawing(self, spec: Spec) -> DrawOwn | None:
        """Return a function that draws operands from --data. Raises AccprobeError."""
        if self.data is None:
            return None
        from accprobe.budget.data import draw_patterns

        if spec.a.is_integer:
            raise AccprobeError(f"--data has real numbers, but the operands are {spec.a}: leave it out")
        self.data.check_k(spec.k)
        return partial(draw_patterns, self.data, spec.a, spec.b, spec.m, spec.n, spec.k)

    def keep_measured(self, reason: str) -> Report | None:
        """Add a row with the results so far of the current product, if there are any; None if not. reason: why it ended."""
        measured, self.measured = self.measured, None
        if measured is None or measured.outcome is None:
            return None
        if not measured.finished:
            measured.outcome.stopped = reason
        return self.add(measured.row(), compare=measured.finished)

    def sweep_rows(self, setting: ProductSetting, ms: Sequence[int], show: Show) -> Iterator[ProductRow]:
        """Yield a row for each group of values of M that give the same bits, measured at the largest M of the group."""
        from accprobe.callables.reductions import RowsOfX
        from accprobe.gemm.checks.regions import same_rows

        reduced = setting.request.reduced is not None

        def at(m: int) -> ProductSetting:
            k = setting.request.shape[2]
            shape = (1, m, k) if reduced else (m, *setting.request.shape[1:])
            return replace(setting, request=replace(setting.request, shape=shape))

        def box(m: int) -> Any:
            show(ms.index(m), len(ms), f"{setting.callable}: rows of {m}")
            adapter = self.open(at(m)).adapter
            return RowsOfX(adapter) if reduced else adapter

        self.sweeping = True
        found = same_rows(box, ms, self.seed, "rows" if reduced else "m")
        self.sentences += [str(each) for each in found]
        self.differs |= len(found) > 1
        for each in found:
            row = self.measure(at(max(each.ms)), show)
            apart = (str(each),) if len(found) > 1 else ()
            yield row.model_copy(update={"remarks": (*row.remarks, *apart)})


def _explain_activation(epilogue: Epilogue | None, outcome: ProductOutcome) -> None:
    """Add to the finding `epilogue` how the activation is computed, on all words of 16 bits or a sample of words of 32 bits."""
    if epilogue is None or epilogue.activation is None or outcome.epilogue is None:
        return
    from accprobe.function.candidates import sample_words
    from accprobe.function.measure import FunctionRequest, measure
    from accprobe.gemm.epilogue import activation_words

    fmt = outcome.spec.out
    subject: Any = SimpleNamespace(operand=fmt, result=fmt, on_device=False, device=epilogue.library.device)
    subject.name, subject.words = epilogue.activation.name, lambda words: activation_words(epilogue, words[None])[0]
    row = measure(subject, FunctionRequest(sampled=True))
    compared, wrong = f"{len(sample_words(fmt)):,} {fmt} words", row.verification.mismatches if row.verification else 0
    how = f"{subject.name} is {row.computes}: {compared}, 0 differ"
    if wrong or not row.computes:
        nearest = f"the nearest, {row.computes}, differs in {wrong:,} of {compared}" if row.computes else row.reason
        how = f"no known way to compute {subject.name} gives its bits: {nearest}"
    outcome.epilogue = replace(outcome.epilogue, note=f"{outcome.epilogue.note}; {how}")


def device_in_words(opened: Opened) -> str:
    """Return "NVIDIA H200", or "the CPU, AMD EPYC 9654"."""
    from accprobe.gemm.machine import device_record

    library = opened.adapter.library
    name = device_record(library).name
    return f"the CPU, {name}" if library.device == "cpu" else name


def _without_effect(options: Sequence[str]) -> str:
    return f"{' and '.join(options)} {'has' if len(options) == 1 else 'have'} no effect on the CPU"


def usual_elements(spec: Any, device: str, reduction: bool) -> int:
    """Return the default number of fresh elements to verify a plan on."""
    platform = "cuda" if device.startswith("cuda") else "cpu"
    elements, calls = (ROWS, ROW_CALLS) if reduction else (ELEMENTS, CALLS)
    most: int = calls[platform] * spec.m * spec.n
    return min(elements[platform], most)

"""Reports as files: written, read, refused; products in them; their JSON Schema, their flat forms, the evidence beside them."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from commands import invoke
from fakes import fake_report, float_row, report_data, simulated_report, with_value
from golden import REPORT_FILE, schema
from product_rows import TAIL, dropped, product_data, product_model, product_report, product_row, suggested, two_regions

from accprobe.errors import ReportError
from accprobe.model.product import Scales
from accprobe.report import recorded
from accprobe.report.autosave import with_results
from accprobe.report.columns import field_names, meaning_of
from accprobe.report.evidence import load_with_evidence, split
from accprobe.report.report import Report
from accprobe.report.words import miscounted, plan_words

WGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"


def test_saved_report_loads_as_it_was_and_saving_is_stable(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    fake_report().save(path)
    first = path.read_bytes()
    assert Report.load(path) == fake_report()
    Report.load(path).save(path)
    assert path.read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]
    path.write_bytes(b"\xef\xbb\xbf" + first)
    assert Report.load(path) == fake_report()


def altered(path: str, value: object) -> str:
    return json.dumps(with_value(report_data(), path, value))


BROKEN = {
    "truncated": (json.dumps(report_data())[:300], "it is not JSON, or truncated (EOF while parsing"),
    "nested too deeply": ("[" * 100_000, "it is not JSON, or truncated (recursion limit exceeded"),
    "another tool's": ('{"devices": [], "version": "1"}', "it is not a report of schema 5"),
    "newer schema": (
        altered("schema", 6),
        "it is not a report of schema 5, which this accprobe reads: give a report that accprobe wrote",
    ),
    "field missing": (altered("device.name", None), "device.name: field required"),
    "unknown key": (altered("device.host", "me"), "device.host: extra inputs are not permitted; it is 'me'"),
    "unknown instruction": (altered("claims.1.name", "wgmma.m64n8k33.f32"), "claims.1.instruction: name: unknown instruction"),
    "an instruction twice": (
        altered("claims.2.name", "wgmma.m64n8k32.f32.e4m3.e4m3.rs"),
        "claims.3: wgmma.m64n8k32.f32.e4m3.e4m3.rs is there twice",
    ),
    "nothing verified": (
        altered("claims.1.verification.compared", 0),
        "claims.1.instruction: status: 'confirmed', yet nothing was compared with the model",
    ),
    "confirmed, and a reason why not": (
        altered("claims.1.reason", "3 differ"),
        "claims.1.instruction: status: 'confirmed', yet there is a reason against it: 3 differ",
    ),
    "nothing found": (altered("claims.1.findings", {}), "claims.1.instruction: status: 'confirmed', yet there are no findings"),
    "no alternatives": (
        altered("claims.1.alternatives", None),
        "claims.1.instruction: status: 'confirmed', yet no alternatives were tested",
    ),
    "an opcode that did not run": (
        altered("claims.1.opcodes", ["QMMA.16832.F32"]),
        "claims.1.instruction: opcodes: QMMA.16832.F32, yet the matrix opcodes of the lowering are HMMA.16816.F32",
    ),
    "confirmed by no hardware": (
        altered("device.kind", "simulated"),
        "claims.1.status: 'confirmed', yet the device's kind is 'simulated'",
    ),
    "no model": (altered("claims.1.model", None), "claims.1.instruction: status: 'confirmed', yet there is no model"),
    "broken model": (altered("claims.1.model.order", "[c 0-"), "claims.1.instruction.model: order"),
    "evidence too short": (
        altered("claims.1.evidence.alignment_bits", [["00", "00", "00", "00"]]),
        "claims.1.instruction: evidence.alignment_bits.0: it has 2, 2, 2, 2 hex digits, and an exchange of"
        " mma.sync.m16n8k32.f32.e4m3.e4m3.f32 has 64, 64, 8, 8",
    ),
}


@pytest.mark.parametrize(("text", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_report_is_refused_with_file_key_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ReportError) as caught:
        Report.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {reason}")
    assert ("newer" in message) == ("newer" in reason)
    assert "\n" not in message


def test_other_bytes_folders_and_devices_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_bytes(b'{"schema": "\xff\xfe"}')
    with pytest.raises(ReportError, match="not JSON"):
        Report.load(tmp_path / "broken.json")
    with pytest.raises(ReportError, match="cannot be read: Is a directory"):
        Report.load(tmp_path)
    with pytest.raises(ReportError, match="sim:h100 is a device; `accprobe run --device sim:h100 -o FILE` makes a report"):
        Report.load("sim:h100")


def test_recorded_report_is_found_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    fake_report().save(tmp_path / "reports" / "mine.json")
    monkeypatch.setattr(recorded, "data_folder", lambda name: tmp_path / name)
    assert recorded.recorded() == ["mine"]
    assert Report.load("mine") == fake_report()
    with pytest.raises(ReportError, match=r"no recorded report 'min'; did you mean mine\?"):
        Report.load("min")


@pytest.mark.parametrize(
    ("against", "words"),
    [
        ({"contradicting": 7, "results": 9}, "and 7 contradict it"),
        ({"results": 9}, "no events were counted"),
        (
            {"events": {"hit": 3, "possible": 4, "missing": ["tie"]}},
            "3 of 4 events of the model were covered; not covered: tie",
        ),
        ({"events": {"hit": 5, "possible": 4}}, "5 of 4 events of the model were covered"),
        ({"tile": {"covered": 3, "total": 512}}, "3 of the 512 tile elements were covered"),
        ({"tile": {"covered": 512, "total": 512, "differing": "row 3"}}, "tile elements differ: row 3"),
    ],
)
def test_a_confirmed_row_that_its_verification_contradicts_is_refused(against: dict[str, object], words: str) -> None:
    row = float_row(WGMMA, 13, {"QGMMA": 1})
    row["verification"] |= against
    with pytest.raises(ValueError, match=words):
        fake_report(row)


@pytest.fixture(scope="module")
def validator() -> Any:
    published = json.loads(REPORT_FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(published)
    return jsonschema.Draft202012Validator(published)


def test_the_published_schema_is_the_reader_s() -> None:
    assert json.loads(REPORT_FILE.read_text(encoding="utf-8")) == schema(REPORT_FILE), (
        "write it: python tests/support/golden.py"
    )


@pytest.mark.parametrize("name", [name for name in recorded.recorded() if "h100" not in name])
def test_recorded_reports_are_valid(validator: Any, name: str) -> None:
    """Every twentieth claim: the reader, whose schema it is, checks all."""
    data = json.loads(recorded.find(name).read_text(encoding="utf-8"))
    validator.validate(data | {"claims": data["claims"][::20]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A report that is split in two files."""
    fake_report().save(tmp_path / "r.json")
    split(tmp_path / "r.json")
    return tmp_path / "r.json"


def test_a_split_report_is_the_same_with_its_evidence(path: Path) -> None:
    assert load_with_evidence(path) == fake_report()
    assert not any(row.evidence for row in Report.load(path).instructions)
    split(path)
    assert load_with_evidence(path) == fake_report()


def test_evidence_in_the_report_counts(path: Path) -> None:
    fake_report().save(path)
    path.with_name("r.evidence.json.gz").write_bytes(gzip.compress(b"{}"))
    assert load_with_evidence(path) == fake_report()


NAME = fake_report().measured[0].name


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not gzip", "r.evidence.json.gz cannot be read: Not a gzipped file"),
        (gzip.compress(b'{"a": 1}'), "r.evidence.json.gz: a: input should be an object"),
        (
            gzip.compress(json.dumps({NAME: {"order": [["00", "00", "00", "00"]]}}).encode()),
            "r.evidence.json.gz: evidence.order.0: it has 2, 2, 2, 2 hex digits",
        ),
    ],
    ids=["no gzip", "another form", "of another instruction"],
)
def test_a_broken_file_is_named_with_the_reason(path: Path, content: bytes, reason: str) -> None:
    path.with_name("r.evidence.json.gz").write_bytes(content)
    with pytest.raises(ReportError) as error:
        load_with_evidence(path)
    assert str(error.value).startswith(reason)


def test_every_field_has_a_description() -> None:
    assert all(map(meaning_of, field_names()))


@pytest.mark.parametrize("name", ["h200", "products-h200", "functions-h200"])
def test_csv_has_every_claim_and_its_findings(name: str) -> None:
    result = invoke("show", name, "--format", "csv")
    assert (result.exit_code, result.stderr) == (0, "")
    claims = Report.load(name).claims
    for row, claim in zip(csv.DictReader(io.StringIO(result.stdout)), claims, strict=True):
        assert (row["kind"], row["name"], row["status"]) == (claim.kind, claim.name, claim.status)
        for feature, finding in (claim.parts[0].findings if claim.parts else {}).items():
            value = "" if finding.value is None else str(finding.value)
            assert (row[feature], row[f"{feature}_bound"]) == (value, finding.bound)


ROWS = {
    "one chain": product_data(),
    "slices, promoted": product_data(product_model(slices=2, promote=128)),
    "scales": product_data(product_model(scales=Scales("row")), scale="row"),
    "dropped": dropped(),
    "suggested": suggested(),
    "two regions": two_regions(),
    "nothing found": product_data(status="inferred", reason="no tree", regions=[], verification=None),
    "options": product_data(options={"use_fast_accum": False, "x": None, "y": 1.5, "z": "w"}),
}


@pytest.mark.parametrize("name", ROWS)
def test_row_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    before = product_report(ROWS[name])
    before.save(tmp_path / "r.json")
    assert Report.load(tmp_path / "r.json") == before
    jsonschema.Draft202012Validator(schema(REPORT_FILE)).validate(json.loads(before.dumps()))


CONFIRMED = "claims.0.product: status: 'confirmed', yet "
MODEL = "regions.0.model"
BROKEN_PRODUCTS: dict[str, tuple[str, object, str]] = {
    "no shape": ("k", None, "claims.0.product.k: field required"),
    "fresh elements differ": ("verification.mismatches", 2, f"{CONFIRMED}2 results differ from the model and 0 contradict it"),
    "no model": (MODEL, None, f"{CONFIRMED}regions.0: there is no model"),
    "suggested": ("regions.0.findings.split_k.bound", "suggested", f"{CONFIRMED}regions.0: findings.split_k is suggested"),
    "an element more": ("regions.0.elements", 127, f"{CONFIRMED}its regions have 127 of 128 elements"),
    "model of another K": ("k", 512, "claims.0.product: regions.0.model: of 1024 e4m3 e4m3 f32, and the row of 512"),
}


def broken_product(path: str, value: object) -> str:
    """Return a report of one product that has this value at a path, or lacks the key if it is None."""
    return json.dumps(report_data(claims=[with_value(product_data(product_model(promote=128)), path, value)]))


@pytest.mark.parametrize("name", BROKEN_PRODUCTS)
def test_a_broken_product_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    path, value, message = BROKEN_PRODUCTS[name]
    (tmp_path / "r.json").write_text(broken_product(path, value))
    with pytest.raises(ReportError) as error:
        Report.load(tmp_path / "r.json")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_row_that_is_not_confirmed_may_have_what_a_confirmed_one_may_not() -> None:
    row = product_data(status="inferred", reason="1 of 9 fresh elements differ from what the plan gives")
    row["verification"] |= {"mismatches": 1, "contradicting": 2}
    row["regions"][0] |= {"alternatives": None, "elements": 3}
    assert product_report(row).products[0].verification is not None


def test_products_of_another_run_replace_those_that_were_asked_the_same() -> None:
    alone = {"run": {"jobs": 1, "seconds": 1.0, "selected": 0}}
    before = product_report(product_data(), product_data(name="torch:addmm"))
    after = with_results(before, product_report(dropped(), product_data(name="numpy:matmul"), **alone))
    assert [row.name for row in after.products] == ["torch:mm", "torch:addmm", "numpy:matmul"]
    assert list(miscounted(after.products[0])) == [("rows 0-15, columns 0-7", TAIL)]
    with pytest.raises(ReportError, match="give another file"):
        with_results(simulated_report(), product_report(dropped(), **alone))
    beside_rows = with_results(fake_report(), product_report(dropped(), **alone))
    assert {row.name for row in fake_report().claims} < {claim.name for claim in beside_rows.claims}


@pytest.mark.parametrize(
    ("changes", "globs", "meant"),
    [
        ({}, "torch:addmm", False),
        ({}, "torch:mm 16x8x* e4m3 f32", True),
        ({}, "torch:mm 16x8x512", False),
        ({"scale": "row"}, "torch:mm 16x8x1024 e4m3 -> f32 scale=row", True),
        ({"scale": "row"}, "torch:mm, e4m3->f32, scale=row", True),
        ({}, "torch:mm f32 -> f32", False),
        ({}, "torch:mm 16x8x1024 e4m3 x e4m3 -> f32", True),
    ],
)
def test_globs_name_products(changes: dict[str, Any], globs: str, meant: bool) -> None:
    row = product_row(product_data(**changes))
    assert row.matches(globs) == meant


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (product_data(product_model(slices=2, promote=128)), "2 slices of 512, partials f32, promotion interval 128"),
        (suggested(model=product_model(promote=128)), "~one chain, promotion interval ~128"),
        (product_data(regions=[], status="inferred", reason="no tree"), ""),
        (
            product_data(findings={"split_k": {"value": 1, "bound": "undetermined"}}),
            "one chain?",
        ),
    ],
)
def test_plan_in_words(row: dict[str, Any], words: str) -> None:
    assert plan_words(product_row(row).findings) == words

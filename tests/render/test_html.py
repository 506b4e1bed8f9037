"""The HTML: whole in itself, inert whatever is in the report, and as a browser has it where one is installed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from commands import invoke
from fakes import fake_report, float_row
from shown import page_of as report_page
from shown import page_of_diff as diff_page

from accprobe.compare.diff import diff
from accprobe.render.subjects.report import lines
from accprobe.report.evidence import load_with_evidence
from accprobe.report.report import Report

WGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}</style></title>"


class Page(HTMLParser):
    """Tags with their attributes, and the text outside of scripts and styles."""

    VOID = ("meta", "input", "br", "rect", "circle", "path")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text.replace("<wbr>", ""))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def h200() -> str:
    result = invoke("show", "h200", "--format", "html")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


@pytest.fixture(scope="module")
def page(h200: str) -> Page:
    return Page(h200)


def evil_report() -> Report:
    """Every free text of a report is hostile."""
    row = float_row(WGMMA, 13, {"QGMMA" + EVIL: 1}, status="inferred", reason=EVIL, cubin_sha256=EVIL)
    row["findings"]["carries"] = {"value": EVIL, "bound": "undetermined", "candidates": [EVIL, "b"], "note": EVIL}
    row["findings"][EVIL] = {"value": EVIL, "bound": "exact"}
    row["alternatives"] = {"tested": 1, "surviving": [EVIL]}
    row["verification"] = {"compared": 10, "mismatches": 0, "seed": 0, "kinds": {EVIL: 10}}
    row["evidence"][EVIL] = row["evidence"]["alignment_bits"]
    skipped = {"name": f"{WGMMA}.rs", "status": "skipped", "reason": EVIL}
    device = {"kind": "simulated", "name": EVIL, "architecture": "sm_90a", "reason": EVIL, "facts": {EVIL: EVIL}}
    tool = {"version": EVIL, "commit": EVIL}
    return fake_report(row, skipped, device=device, tool=tool, environment={EVIL: EVIL, "driver": EVIL})


@pytest.mark.parametrize("make", [report_page, lambda report: diff_page(diff(report, fake_report()))])
def test_hostile_report_is_inert(make: Any) -> None:
    text = make(evil_report())
    shown = Page(text)
    assert [tag for tag, _ in shown.tags].count("script") == 1
    assert not shown.all("img")
    assert not any(key.startswith("on") for _, attributes in shown.tags for key in attributes)
    assert "49" not in re.findall(r"\{\{.*?\}\}|\b49\b", text)
    assert EVIL in " ".join(shown.words)
    assert EVIL not in text


def test_page_loads_nothing(h200: str, page: Page) -> None:
    assert not any({"src", "srcset", "data", "action", "poster"} & attributes.keys() for _, attributes in page.tags)
    assert all((link["href"] or "").startswith("#") for link in page.all("a"))
    assert not page.all("link")
    assert not re.search(r"https?://|url\((?!#)|@import|fetch\(|XMLHttpRequest|WebSocket|import\(", h200)
    policy = next(meta["content"] for meta in page.all("meta") if "http-equiv" in meta)
    assert re.fullmatch(r"default-src 'none'; style-src 'sha256-\S+'; script-src 'sha256-\S+'", policy)


def test_every_link_leads_somewhere_and_no_id_is_twice(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"] for link in page.all("a")} <= {f"#{one}" for one in ids}


def test_every_measured_instruction_has_a_line_and_a_section(h200: str, page: Page) -> None:
    report = load_with_evidence("h200")
    assert {f"i{i}" for i in range(len(lines(report.measured, collapse=False)))} <= {a.get("id") for _, a in page.tags}
    words = " ".join(page.words)
    for row in report.measured[::10]:
        for opcode, _ in row.lowering:
            assert opcode in words
    assert h200.count("<tr>") >= len(report.measured)

"""The writers: what a width leaves out, where lines are broken, and that no text is markup."""

from __future__ import annotations

import re

import pytest
from shown import on_terminal

from accprobe.render.document import Code, Column, Element, Heading, List, Paragraph, Phrase, Section, fact_grid, table
from accprobe.render.html import html_page
from accprobe.render.markdown import markdown_text

EVIL = "<script>a|b</script>`x`_*\n| c |\n# d"
NAMES = table(
    (
        Column("name", least=10),
        Column("bits"),
        Column("F", need="context"),
        Column("dots\nverified", need="detail", number=True),
    ),
    (
        (Phrase("mma.sync.m16n8k8.f32.f16.{f16,f32}.f32", code=True), "23", "25", "1,000"),
        (Phrase("wgmma.m64n8k8"), "13", "13", "1,000"),
    ),
)
ALL: list[Element] = [
    Heading(EVIL, 1),
    Paragraph(Phrase(EVIL, "bad"), boxed=True),
    List((EVIL, List((EVIL,))), "!"),
    table((EVIL, "b"), ((EVIL, Phrase(EVIL, code=True)), (EVIL, "x"))),
    fact_grid([(EVIL, EVIL)]),
    Code((EVIL,)),
    Section(EVIL, lambda: [Paragraph(EVIL)], anchor="s", name=EVIL),
]


@pytest.mark.parametrize(
    ("width", "columns", "left_out"),
    [
        (80, "name bits F verified", ""),
        (50, "name bits F", "Columns left out at this width: dots verified"),
        (23, "name bits F", ""),
        (18, "name bits", ""),
    ],
)
def test_details_go_before_a_cell_is_broken_and_context_before_it_cannot_be(width: int, columns: str, left_out: str) -> None:
    shown = on_terminal([NAMES], width).splitlines()
    assert max(map(len, shown)) <= width
    (header,) = (line for line in shown if line.startswith("name"))
    assert " ".join(header.split()) == columns
    assert left_out in "\n".join(shown)


def test_nothing_of_a_text_is_markup() -> None:
    page = html_page(EVIL, ALL)
    assert page.count("<script>") == 1
    assert page.count("&lt;script&gt;") == 16
    text = re.sub(r"`[^`\n]*`", "", markdown_text(ALL[:-2]))
    assert not re.search(r"(?<!\\)<script|^# d", text, re.MULTILINE)
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1

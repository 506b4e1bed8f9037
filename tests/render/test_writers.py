"""The writers: what a width leaves out, where lines are broken, and that no text is markup."""

from __future__ import annotations

import re

from accprobe.render.document import Code, Column, Element, Heading, List, Paragraph, Phrase, Section, fact_grid, table
from accprobe.render.html import html_page
from accprobe.render.markdown import markdown_text
from accprobe.render.terminal import screen_lines

EVIL = "<script>a|b</script>`x`_*\n| c |\n# d"
ALL: list[Element] = [
    Heading(EVIL, 1),
    Paragraph(Phrase(EVIL, "bad"), boxed=True),
    List((EVIL, List((EVIL,))), "!"),
    table((EVIL, "b"), ((EVIL, Phrase(EVIL, code=True)), (EVIL, "x"))),
    fact_grid([(EVIL, EVIL)]),
    Code((EVIL,)),
    Section(EVIL, lambda: [Paragraph(EVIL)], anchor="s"),
]


def test_nothing_of_a_text_is_markup() -> None:
    page = html_page(EVIL, ALL)
    assert page.count("<script>") == 1
    assert page.count("&lt;script&gt;") == 15
    text = re.sub(r"`[^`\n]*`", "", markdown_text(ALL[:-2]))
    assert not re.search(r"(?<!\\)<script|^# d", text, re.MULTILINE)
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1


def test_a_long_text_of_neighbouring_rows_is_printed_once() -> None:
    long = "a cause that takes several lines of its column"
    rows = (("p", long), ("q", long), ("r", "short"), ("s", "short"), ("t", long))
    text = "\n".join(line.plain for line in screen_lines([table(("row", Column("cause", once=True)), rows)], 32))
    assert (text.count("a cause"), text.count("as above"), text.count("short")) == (2, 1, 2)

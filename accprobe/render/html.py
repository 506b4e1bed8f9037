"""Documents as one HTML file that loads nothing: style and script are in it, no others may run.

Every word is escaped; the page's policy lets only its own script run, by digest.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from accprobe.render.document import (
    JOINTS,
    Code,
    Column,
    Element,
    Grid,
    Heading,
    List,
    Paragraph,
    Phrase,
    Said,
    Section,
    line,
    on_one_line,
    text_of,
    unglued,
)
from accprobe.report.report import Tool

LONG, LONG_FIRST = 40, 24
"""Characters of a cell, and of the first in a row, from which its column has a minimum width instead of many short lines."""

LABEL = 60
"""Most characters of the label of a table, which a screen reader reads out."""

_CODE = re.compile(r"`([^`\n]+)`")


def html_page(title: str, blocks: Sequence[Element]) -> str:
    """Return the whole page. Its parts, the headings of level 2 that have an anchor, are linked at the top."""
    style, script = _file("page.css"), _file("page.js")
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    main = "\n".join(_blocks(blocks))
    parts = [block for block in blocks if isinstance(block, Heading) and block.level == 2 and block.anchor]
    links = "".join(f'<li><a href="#{part.anchor}">{_words(part.words)}</a></li>' for part in parts)
    nav = f'<nav aria-label="Parts of this page"><ul>{links}</ul></nav>' if len(parts) > 1 else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}: accprobe</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
{nav}
<main id="main">
{main}
</main>
<footer><p>Written by accprobe {_text(Tool.current().version)}. The page loads nothing else.</p></footer>
<script>{script}</script>
</body>
</html>
"""


@cache
def _file(name: str) -> str:
    return files("accprobe.render").joinpath("templates", name).read_text("utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _blocks(blocks: Iterable[Element]) -> Iterator[str]:
    what = ""
    for block in blocks:
        if isinstance(block, Heading):
            what = text_of(block.words)
            yield _heading(block.words, block.level, block.anchor)
        elif isinstance(block, Paragraph):
            tones = {span.tone for span in line(block.words)}
            framed = f"box {tones.pop()}" if block.boxed and len(tones) == 1 else ""
            yield f"<p{_class(framed)}>{_words(block.words)}</p>"
        elif isinstance(block, List):
            yield _list(block)
        elif isinstance(block, Code):
            yield f'<pre tabindex="0">{_text(chr(10).join(block.lines))}</pre>'
        elif isinstance(block, Section):
            yield from _section(block)
        elif block.is_of_facts:
            yield _facts(block)
        else:
            label = escape((block.caption or what)[:LABEL])
            yield f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{_table(block)}</div>'


def _heading(words: Said, level: int, anchor: str) -> str:
    target = f' id="{anchor}"' if anchor else ""
    return f"<h{level}{target}>{_words(words)}</h{level}>"


def _section(section: Section) -> Iterator[str]:
    yield f"<details{' open' * section.open}>"
    yield f"<summary>{_heading(section.title, section.level, section.anchor)}</summary>"
    yield from _blocks(section.blocks())
    yield "</details>"


def _list(block: List) -> str:
    items = (_list(item) if isinstance(item, List) else _words(item) for item in block.items)
    return f"<ul{_class('alarms' if block.mark == '!' else '')}>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _facts(table: Grid) -> str:
    return f"<dl>{''.join(f'<dt>{_words(label)}</dt><dd>{_words(said)}</dd>' for label, said in table.rows)}</dl>"


def _table(table: Grid) -> str:
    caption = f"<caption>{_text(table.caption)}</caption>" if table.caption else ""
    longest = [max((len(text_of(row[i])) for row in table.rows), default=0) for i in range(len(table.columns))]
    kinds = [_kinds(column, longest[i] >= (LONG if i else LONG_FIRST)) for i, column in enumerate(table.columns)]
    heads = "".join(
        f'<th scope="col"{_class(kind)}>{_text(on_one_line(column.header))}</th>'
        for kind, column in zip(kinds, table.columns, strict=True)
    )
    rows = "\n".join(_row(kinds, row) for row in table.rows)
    kind = "filtered sortable" if table.filtered else "sortable"
    return f'<table class="{kind}">{caption}\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>'


def _row(kinds: Sequence[str], row: Sequence[Said]) -> str:
    first, *others = (f"{_class(kind)}>{_words(cell)}" for kind, cell in zip(kinds, row, strict=True))
    return f'<tr><th scope="row"{first}</th>{"".join(f"<td{cell}</td>" for cell in others)}</tr>'


def _kinds(column: Column, is_long: bool) -> str:
    kinds = {"whole": column.whole, "number": column.number, "detail": column.need == "detail"}
    kinds["long"] = is_long and not (column.whole or column.number)
    return " ".join(kind for kind, is_so in kinds.items() if is_so)


def _words(words: Said) -> str:
    return "".join(map(_span, line(words)))


def _span(span: Phrase) -> str:
    text = _text(span.text) if span.code else _CODE.sub(r"<code>\1</code>", _text(span.text))
    if span.target:
        return f'<a href="#{span.target}">{text}</a>'
    if span.code:
        text = f"<code>{text}</code>"
    return f'<span class="{span.tone}">{text}</span>' if span.tone else text


def _text(text: str) -> str:
    """Return the text as markup that shows it. Long words break at joints; arrows and numbers such as 7.6e-04 do not."""

    def marked(found: re.Match[str]) -> str:
        return f'<span class="unbroken">{found[0]}</span>' if found[1] else "<wbr>".join(JOINTS.split(found[0]))

    return re.sub(r"(-&gt;|\b\d[\d.]*e-\d+)|\S{16,}", marked, escape(unglued(text)))


def _class(class_: str) -> str:
    return f' class="{class_}"' if class_ else ""

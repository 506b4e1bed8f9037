"""Scalable vector graphics in a few words. Colours are classes that the page's style sheet has, for light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def element(name: str, content: str = "", **attributes: object) -> str:
    """One element; `_` in a key stands for `-`, and one at its end for nothing. `content` is markup, attributes are escaped."""
    keys = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    inside = "".join(f' {key}="{escape(str(value))}"' for key, value in keys)
    return f"<{name}{inside}>{content}</{name}>" if content else f"<{name}{inside}/>"


def text_element(x: float, y: float, words: str, **attributes: object) -> str:
    """Words at a point; plain text, whatever is in it."""
    return element("text", escape(words), x=_short(x), y=_short(y), **attributes)


def box(x: float, y: float, width: float, height: float, class_: str) -> str:
    """A rectangle."""
    return element("rect", x=_short(x), y=_short(y), width=_short(width), height=_short(height), class_=class_)


def path(points: Iterable[tuple[str, float, float]], class_: str) -> str:
    """Strokes: ("M", x, y) moves the pen, ("L", x, y) draws."""
    return element("path", d="".join(f"{step}{_short(x)} {_short(y)}" for step, x, y in points), class_=class_)


def picture(width: float, height: float, label: str, shapes: Iterable[str], **attributes: object) -> str:
    """The whole drawing, with a sentence for who cannot see it; it never grows beyond its own size."""
    size = {"width": _short(width), "height": _short(height), "viewBox": f"0 0 {_short(width)} {_short(height)}"}
    return element("svg", "".join(shapes), **size, role="img", aria_label=label, **attributes)


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")

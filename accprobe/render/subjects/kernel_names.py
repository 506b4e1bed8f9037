"""Names of kernels as people read them: demangled, without parameters, and no longer than a line."""

from __future__ import annotations

from functools import cache

LONGEST = 96
"""Characters of a shortened name."""

_ELIDED = "<…>"


@cache
def demangled(name: str) -> str:
    """The name as C++ writes it; as it is where it is no mangled one, or nothing demangles it."""
    if not name.startswith("_Z"):
        return name
    try:
        import cxxfilt

        return str(cxxfilt.demangle(name))
    except Exception:  # without the package or a C++ library, and of a name that is none
        return name


@cache
def short_name(name: str) -> str:
    """The demangled name without its result and parameters; the innermost template arguments are left out until it is short."""
    full = demangled(name)
    text = full if full == name else _without_parameters(full).replace("> >", ">>").replace("> >", ">>")
    depth = _depth(text)
    while len(text) > LONGEST and depth:
        text = _without_depth(text, depth)
        depth -= 1
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _without_parameters(text: str) -> str:
    """ "f<int>" of "void f<int>(int*)", in which brackets also belong to `(anonymous namespace)` and to casts of arguments."""
    text = text.replace("(anonymous namespace)::", "")
    level = start = 0
    for i, character in enumerate(text):
        level += (character == "<") - (character == ">")
        if character == " " and not level:
            start = i + 1
        elif character == "(" and not level:
            return text[start:i]
    return text[start:]


def _depth(text: str) -> int:
    deepest = level = 0
    for character in text:
        level += (character == "<") - (character == ">")
        deepest = max(deepest, level)
    return deepest


def _without_depth(text: str, depth: int) -> str:
    """Template arguments of that depth or deeper are an ellipsis."""
    kept: list[str] = []
    level = 0
    for character in text:
        level += character == "<"
        if level < depth:
            kept.append(character)
        elif level == depth and character == "<":
            kept.append(_ELIDED)
        level -= character == ">"
    return "".join(kept)

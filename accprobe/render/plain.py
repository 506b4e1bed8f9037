"""Text that others wrote, for a terminal: names in binaries and reports may hold what steers one.

Control characters of ASCII and of Latin-1 (escape sequences begin with one of either), and those that turn the direction of
writing around, so that a line reads otherwise than it is (Boucher & Anderson, "Trojan Source", arXiv 2111.00169). Halves of
characters too, which no encoding has: Python reads bytes of a file's name that are no UTF-8 as such.
"""

from __future__ import annotations

_PICTURES = 0x2400
"""Unicode's pictures of control characters, in their order: U+241B shows that an escape character is there."""
_UNKNOWN = "\ufffd"
_TURNING = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C]

_SHOWN: dict[int, int | str] = {code: _PICTURES + code for code in range(32) if chr(code) not in "\t\n"}
_SHOWN |= {127: _PICTURES + 33}
_SHOWN |= dict.fromkeys([*range(0x80, 0xA0), *_TURNING, 0x2028, 0x2029, *range(0xD800, 0xE000)], _UNKNOWN)


def plain(text: str) -> str:
    """The text with a picture in place of each character that would steer a terminal; tabs and ends of lines are left."""
    return text.translate(_SHOWN)

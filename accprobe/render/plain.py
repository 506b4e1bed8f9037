"""Text from binaries and reports, made safe for a terminal.

Replaces control characters of ASCII and Latin-1, which begin escape sequences; characters that change the direction of writing
(Boucher & Anderson, "Trojan Source", arXiv 2111.00169); and surrogates, which stand for bytes of file names that are not UTF-8.
"""

from __future__ import annotations

_PICTURES = 0x2400
"""Start of Unicode's pictures of control characters: U+241B stands for an escape character."""
_UNKNOWN = "\ufffd"
_TURNING = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C]

_SHOWN: dict[int, int | str] = {code: _PICTURES + code for code in range(32) if chr(code) not in "\t\n"}
_SHOWN |= {127: _PICTURES + 33}
_SHOWN |= dict.fromkeys([*range(0x80, 0xA0), *_TURNING, 0x2028, 0x2029, *range(0xD800, 0xE000)], _UNKNOWN)


def plain(text: str) -> str:
    """Return the text with a picture in place of each control character, except tabs and line feeds."""
    return text.translate(_SHOWN)

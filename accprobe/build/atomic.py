"""Files of which a reader sees all or nothing, however the writer ends."""

from __future__ import annotations

import secrets
from pathlib import Path


def save(path: Path, content: bytes) -> None:
    """Write a file at once: beside it first, then by rename. What is no regular file is written in place. Raises OSError."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(content)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)

"""The git checkout that accprobe runs from, if it does."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import accprobe


@cache
def commit() -> str | None:
    """Return the commit of the checkout, with "-dirty" where files differ from it; None outside of a git checkout."""
    root = Path(accprobe.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None

"""The folders of accprobe's data, and the commit of the git checkout from which it runs."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import accprobe
from accprobe.errors import AccprobeError

PACKAGE = Path(accprobe.__file__).resolve().parent


@cache
def commit() -> str | None:
    """Return what `git describe` calls the commit of the checkout, with "-dirty" if files differ; None outside of one."""
    root = PACKAGE.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def data_folder(name: str) -> Path:
    """Return the folder "probes" (device code) or "reports" (recorded data), in a checkout a link. Raises AccprobeError."""
    folder = PACKAGE / name
    if folder.is_dir():
        return folder
    raise AccprobeError(
        f"{folder} is not a folder: this checkout has no symbolic links; run `git config core.symlinks true` and"
        " `git checkout -- accprobe` in it, on a file system that has them"
    )

"""Recorded results of real matrix units, where they are on this disk; their source is MATLAB-tensor-core."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VECTORS = Path(os.environ.get("ACCPROBE_HARDWARE_VECTORS") or Path(__file__).parents[3] / "shared" / "hardware-vectors")
FOLDERS = [folder for folder in (VECTORS, VECTORS.with_name(f"more-{VECTORS.name}")) if folder.is_dir()]
"""Every folder of results: that one, and one beside it with those of more GPUs."""

needs_vectors = pytest.mark.skipif(
    not (VECTORS / "H100").is_dir(), reason="no hardware vectors; ACCPROBE_HARDWARE_VECTORS names their folder"
)

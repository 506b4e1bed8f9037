"""Where accprobe finds its data."""

from __future__ import annotations

from pathlib import Path

import pytest

from accprobe.build import checkout
from accprobe.errors import AccprobeError


def test_data_is_found_in_a_checkout() -> None:
    assert (checkout.data_folder("probes") / "wgmma.cu").is_file()
    assert (checkout.data_folder("reports") / "h200.json").is_file()


def test_a_checkout_without_links_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git writes it with core.symlinks=false: a file that has the link's target."""
    (tmp_path / "reports").write_text("../reports")
    monkeypatch.setattr(checkout, "PACKAGE", tmp_path)
    with pytest.raises(AccprobeError, match="no symbolic links; run"):
        checkout.data_folder("reports")

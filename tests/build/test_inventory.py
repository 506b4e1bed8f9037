"""The inventory of what accprobe can use, with lines that install it; the folders of its data."""

from __future__ import annotations

from pathlib import Path

import pytest

from accprobe.build import checkout, inventory
from accprobe.errors import AccprobeError


def test_inventory_has_an_install_line_for_all_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_package", lambda *_: None)
    items = {item.name: item for item in inventory.inventory()}
    programs = {"nvdisasm", "cuobjdump", "ncu"}
    assert programs | {"driver", "GPU", "cupy", "cuda.core", "nvrtc", "triton", "torch", "ray", "nvidia-ml-py"} <= set(items)
    assert not any(items[name].found for name in ("cupy", "ray", "nvidia-ml-py"))
    assert "[fleet]" in items["ray"].remedy
    assert items["nvidia-ml-py"].remedy == "pip install nvidia-ml-py"
    assert all(item.remedy for item in items.values() if not item.found)


def test_a_checkout_without_links_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git writes it with core.symlinks=false: a file that has the link's target."""
    (tmp_path / "reports").write_text("../reports")
    monkeypatch.setattr(checkout, "PACKAGE", tmp_path)
    with pytest.raises(AccprobeError, match="no symbolic links; run"):
        checkout.data_folder("reports")

"""The inventory: all that accprobe can use has a version or a line that installs it."""

from __future__ import annotations

import pytest

from accprobe.build import inventory


def test_inventory_has_an_install_line_for_all_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_package", lambda *_: None)
    items = {item.name: item for item in inventory.inventory()}
    programs = {"nvdisasm", "cuobjdump", "ncu"}
    assert programs | {"driver", "GPU", "cupy", "cuda.core", "nvrtc", "triton", "torch", "ray", "nvidia-ml-py"} <= set(items)
    assert not any(items[name].found for name in ("cupy", "ray", "nvidia-ml-py"))
    assert "[fleet]" in items["ray"].install
    assert items["nvidia-ml-py"].install == "pip install nvidia-ml-py"
    assert all(item.install for item in items.values() if not item.found)

"""Toolchain: tools are found where they are installed, the first that can read a file is used; the inventory; data folders."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from accprobe.build import checkout, inventory, toolchain
from accprobe.errors import AccprobeError, ToolFailed, ToolMissing


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was found is cached: forget it, before and after. Programs in tmp_path come first."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    toolchain.candidates.cache_clear()
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda _: None)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)


@pytest.fixture(autouse=True, scope="module")
def _forget_after() -> object:
    yield
    toolchain.candidates.cache_clear()


def program(folder: Path, script: str, name: str = "nvdisasm") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_tool_that_cannot_read_the_file_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path / "home" / "bin", "echo 'unknown ELF version' >&2; exit 1")
    program(tmp_path, 'echo "read $1"')
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert toolchain.run("nvdisasm", "a.cubin") == "read a.cubin\n"


def test_failure_and_absence_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if not Path("/usr/local/cuda/bin/nvdisasm").exists():
        with pytest.raises(ToolMissing, match=r"install -e '\.\[sass\]' in accprobe's checkout"):
            toolchain.find("nvdisasm")
    program(tmp_path, "echo 'not a cubin' >&2; exit 3", "cuobjdump")
    with pytest.raises(ToolFailed, match="cuobjdump failed: not a cubin"):
        toolchain.run("cuobjdump", "x")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("nvdisasm warning : old\nnvdisasm error   : no code\nnvdisasm fatal   : aborted", "no code"),
        ("", "exit status 3"),
    ],
)
def test_first_error_is_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, reason: str) -> None:
    program(tmp_path, f"cat >&2 <<END\n{said}\nEND\nexit 3", "nvdisasm")
    monkeypatch.setattr(toolchain, "candidates", lambda tool: [tmp_path / tool])
    with pytest.raises(ToolFailed) as caught:
        toolchain.run("nvdisasm", "k.cubin")
    assert str(caught.value) == f"nvdisasm failed: {reason}"


def test_output_is_read_while_the_program_prints_it(tmp_path: Path) -> None:
    program(tmp_path, "while echo more; do :; done")
    with suppress(KeyboardInterrupt), toolchain.output("nvdisasm") as text:
        assert next(text) == "more\n"
        raise KeyboardInterrupt


def test_a_program_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path, "exec sleep 600")
    monkeypatch.setattr(toolchain, "candidates", lambda tool: [tmp_path / tool])
    with pytest.raises(ToolFailed, match=r"stopped after 0.1 s$"), toolchain.output("nvdisasm", timeout=0.1):
        pass


def test_failure_after_output_is_told(tmp_path: Path) -> None:
    program(tmp_path, "echo 1; echo 'nvdisasm fatal   : damaged' >&2; exit 1")
    with pytest.raises(ToolFailed, match="nvdisasm failed: damaged"), toolchain.output("nvdisasm") as text:
        assert list(text) == ["1\n"]


def test_inventory_has_an_install_line_for_all_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_package", lambda *_: None)
    items = {item.name: item for item in inventory.inventory()}
    programs = {"nvdisasm", "cuobjdump", "ncu"}
    assert programs | {"driver", "GPU", "cupy", "cuda.core", "nvrtc", "triton", "torch", "ray", "nvidia-ml-py"} <= set(items)
    assert not any(items[name].found for name in ("cupy", "ray", "nvidia-ml-py"))
    assert "[fleet]" in items["ray"].remedy
    assert items["nvidia-ml-py"].remedy == "python3 -m pip install nvidia-ml-py"
    assert all(item.remedy for item in items.values() if not item.found)


def test_a_checkout_without_links_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git writes it with core.symlinks=false: a file that has the link's target."""
    (tmp_path / "reports").write_text("../reports")
    monkeypatch.setattr(checkout, "PACKAGE", tmp_path)
    with pytest.raises(AccprobeError, match="no symbolic links; run"):
        checkout.data_folder("reports")

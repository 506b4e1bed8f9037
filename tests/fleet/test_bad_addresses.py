"""Addresses where no cluster is, and a Ray that is not there: one sentence each, at once."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

import pytest
from click.testing import CliRunner, Result

from accprobe.cli import main
from accprobe.errors import UnknownName
from accprobe.fleet import cluster

SOON = 10.0
"""Seconds; Ray itself takes eighty to give up."""


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def asked(*arguments: str) -> Result:
    started = time.monotonic()
    result = CliRunner().invoke(main, arguments)
    assert time.monotonic() - started < SOON
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result


def installed(found: str | None) -> Callable[[str], str]:
    def tell(package: str) -> str:
        if package != "ray":
            return version(package)
        if found is None:
            raise PackageNotFoundError
        return found

    return tell


def test_ray_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "version", installed(None))
    told = asked("health", "--ray", "auto").stderr
    assert "--ray needs Ray, which is not installed" in told
    assert "pip install -e '.[fleet]'" in told


def test_ray_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "version", installed("2.50.1"))
    assert "--ray needs Ray 2.51 or a newer one, here is 2.50.1" in asked("health", "--ray", "auto").stderr


def test_nobody_listens(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "version", installed("2.60.0"))
    address = f"127.0.0.1:{closed_port}"
    assert f"no Ray cluster replies at {address}: Connection refused" in asked("health", "--ray", address).stderr


@pytest.mark.parametrize("address", ["here", ":6379", "10.0.0.1", "10.0.0.1:ray", "127.0.0.1:99999"])
def test_no_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "version", installed("2.60.0"))
    assert address in asked("health", "--ray", address).stderr


def test_the_address_of_rays_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "version", installed("2.60.0"))
    assert "run accprobe on a node of the cluster, with --ray auto" in asked("health", "--ray", "ray://10.0.0.1:10001").stderr


def test_somebody_who_is_no_cluster(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed; extra fleet")
    monkeypatch.setattr(cluster, "CONNECTING", 3.0)
    address = f"127.0.0.1:{silent_port}"
    assert f"no Ray cluster replies at {address} within 3 s" in asked("health", "--ray", address).stderr


def test_devices_that_replace_gpus_are_simulated() -> None:
    with pytest.raises(UnknownName, match="leave out --device cuda:1"):
        cluster.replacements("sim:h100,cuda:1", 3)
    with pytest.raises(UnknownName, match="h101"):
        cluster.replacements("sim:h101", 3)
    assert cluster.replacements("sim:h100,faulty:h100", 3) == ["sim:h100", "faulty:h100", "sim:h100"]
    assert cluster.replacements("all", 2) == [None, None]

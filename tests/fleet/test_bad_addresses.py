"""Addresses where no cluster is, and a Ray that is not there: one sentence each, at once."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import pytest
from click.testing import CliRunner

from accprobe.cli import main
from accprobe.errors import UnknownName
from accprobe.fleet import cluster

SOON = 10.0
"""Seconds; Ray itself takes eighty to give up."""


@pytest.fixture(scope="module")
def silent_port() -> Iterator[int]:
    """A port of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("address", "ray", "sentence"),
    [
        ("auto", None, "--ray needs Ray, which is not installed: "),
        ("auto", "2.50.1", "--ray needs Ray 2.51 or a newer one, here is 2.50.1"),
        ("here", "2.60.0", "--ray here: an address is auto or HOST:PORT"),
        (":6379", "2.60.0", "--ray :6379: an address is auto or HOST:PORT"),
        ("10.0.0.1:ray", "2.60.0", "--ray 10.0.0.1:ray: an address is auto or HOST:PORT"),
        ("127.0.0.1:99999", "2.60.0", "no Ray cluster replies at 127.0.0.1:99999: "),
        ("ray://10.0.0.1:10001", "2.60.0", "run accprobe on a node of the cluster, with --ray auto"),
        ("127.0.0.1:SILENT", "2.60.0", "no Ray cluster replies at 127.0.0.1:SILENT within 3 s"),
        ("127.0.0.1:1", "2.60.0", "no Ray cluster replies at 127.0.0.1:1: Connection refused"),
    ],
)
def test_where_no_cluster_is(
    address: str, ray: str | None, sentence: str, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(package: str) -> str:
        if package == "ray" and ray is None:
            raise PackageNotFoundError
        return (ray or "") if package == "ray" else version(package)

    if "SILENT" in address:
        pytest.importorskip("ray", reason="Ray is not installed; extra fleet")
    monkeypatch.setattr(cluster, "CONNECTING", 3.0)
    monkeypatch.setattr(cluster, "version", installed)
    started = time.monotonic()
    result = CliRunner().invoke(main, ["health", "--ray", address.replace("SILENT", str(silent_port))])
    assert time.monotonic() - started < SOON
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert sentence.replace("SILENT", str(silent_port)) in result.stderr


def test_devices_that_replace_gpus_are_simulated() -> None:
    with pytest.raises(UnknownName, match="leave out --device cuda:1"):
        cluster.replacements("sim:h100,cuda:1", 3)
    with pytest.raises(UnknownName, match="h101"):
        cluster.replacements("sim:h101", 3)
    assert cluster.replacements("sim:h100,faulty:h100", 3) == ["sim:h100", "faulty:h100", "sim:h100"]
    assert cluster.replacements("all", 2) == [None, None]

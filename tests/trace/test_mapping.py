"""Runs of different shapes: the parts that should be equal, and a tensor-parallel run against a whole one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accprobe.errors import AccprobeError
from accprobe.trace import compare_folders
from accprobe.trace.mapping import parse_mapping
from accprobe.trace.records import read_trace

torch = pytest.importorskip("torch")

PARTS = {
    "batch=1:8": [(0, 0, 2)],
    "rows=4": [(0, 0, 4)],
    "token=last": [(0, 15, 1), (1, 5, 1)],
    "shard=1/2": [(0, 8, 8), (1, 3, 3)],
    "shard=1/4": [(0, 4, 4)],
}
"""Dimension, start and length of the parts of a tensor [16, 6] of the larger run."""


@pytest.mark.parametrize("text", PARTS)
def test_a_mapping_names_the_parts_of_a_tensor(text: str) -> None:
    first, second = parse_mapping(text)
    larger = first if text.startswith("shard") else second
    assert list(larger.slices((16, 6))) == PARTS[text]


@pytest.mark.parametrize("text", ["shard=2/2", "shard=0/0", "batch=0", "batch=8:", "columns=3"])
def test_a_mapping_that_is_none_is_one_sentence(text: str) -> None:
    with pytest.raises(AccprobeError, match=r"is not a mapping|size of 0|names rank"):
        parse_mapping(text)


PROGRAM = """
import os
import sys
import torch
import torch.distributed as dist
import accprobe.trace

functional = torch.ops._c10d_functional  # the module with functions of these names takes seconds to import
rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
torch.manual_seed(0)
x, whole_up, whole_down = torch.randn(8, 256), torch.randn(512, 256), torch.randn(256, 512)
for kind, ranks in [("c10d", 1), ("functional", 1)][2 * rank :] + [("c10d", 2), ("functional", 2)]:
    size = 512 // ranks
    up, down = whole_up[rank * size :][:size].clone(), whole_down[:, rank * size :][:, :size].clone()
    with accprobe.trace.record(f"{folder}/{kind}/{ranks}.{rank}", mapping="shard=1/2" if ranks == 1 else ""):
        y = torch.relu(x @ up.t()) @ down.t()
        if ranks == 2 and kind == "c10d":
            dist.all_reduce(y)
        elif ranks == 2:
            y = functional.wait_tensor(functional.all_reduce(y, "sum", dist.group.WORLD.group_name))
        torch.tanh(y)
os._exit(0)  # a thread of gloo that still runs at a normal exit aborts the process
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of one process and of two ranks, KIND/RANKS.RANK: the first rank also runs alone."""
    folder = tmp_path_factory.mktemp("ranks")
    running = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), str(folder)]) for rank in (0, 1)]
    assert [each.wait(120) for each in running] == [0, 0]
    return folder


SUMS = {"c10d": "c10d.allreduce_", "functional": "_c10d_functional.all_reduce"}


@pytest.mark.parametrize("kind", SUMS)
def test_a_rank_is_compared_with_the_whole_run(kind: str, recorded: Path) -> None:
    """The column-parallel layer gives the same words; the row-parallel one is the origin, together with its all-reduce."""
    found = compare_folders(recorded / kind / "1.0", recorded / kind / "2.1")
    (origin,) = found.origins
    assert [x.packet for x in origin.left] == ["aten.mm"]
    assert [x.packet for x in origin.right][:2] == ["aten.mm", SUMS[kind]]
    assert (origin.cause.kind, found.states[0][0]) == ("split_k", "equal")
    reduced = [
        next(x for x in read_trace(recorded / kind / f"2.{rank}").operations if x.packet == "aten.tanh") for rank in (0, 1)
    ]
    assert reduced[0].inputs[0].hash == reduced[1].inputs[0].hash  # the sum, not what each rank added

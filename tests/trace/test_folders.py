"""Traces in folders: read as written, refused in one sentence if somebody made them up, and compared whole or in parts."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import invoke
from planted_plans import FMAS

import accprobe.trace
from accprobe.errors import AccprobeError, RecordingError
from accprobe.trace.folders import compare_folders, record_script
from accprobe.trace.mapping import parse_mapping
from accprobe.trace.records import MOST_LINE, TracedOperation, read_trace

torch = pytest.importorskip("torch")


def recorded(folder: Path, batch: int = 1, **options: Any) -> Path:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32, bias=False), torch.nn.ReLU())
    x = torch.randn(8, 64)
    with torch.no_grad(), accprobe.trace.record(folder, **options):
        model(x[:batch])
    return folder


def test_a_trace_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    trace = read_trace(recorded(tmp_path))
    assert [(x.name, x.module, x.phase) for x in trace.operations] == [
        ("aten.mm.default", "0", "forward"),
        ("aten.relu.default", "1", "forward"),
        ("return", "", "forward"),
    ]
    assert trace.complete
    assert trace.operations[0].outputs == trace.operations[1].inputs


def test_arguments_are_recorded_without_paths_and_addresses(tmp_path: Path) -> None:
    @torch.library.custom_op("accprobe_test::loaded", mutates_args=())
    def loaded(x: torch.Tensor, file: str) -> torch.Tensor:
        return x + 1

    with accprobe.trace.record(tmp_path):
        x = torch.rand(2, generator=torch.Generator())
        torch.nn.functional.gelu(x, approximate="tanh").to(torch.bfloat16)
        loaded(x, "/home/somebody/weights")
    found = {x.packet: x.arguments for x in read_trace(tmp_path).operations}
    assert found["aten.gelu"] == '[["tensor"],{"approximate":"tanh"}]'
    assert found["aten._to_copy"] == '[["tensor"],{"dtype":"torch.bfloat16"}]'
    assert found["accprobe_test.loaded"] == '["tensor","path"]'
    assert '"generator":"Generator"' in found["aten.rand"]


def test_the_first_of_a_batch_is_compared(tmp_path: Path) -> None:
    one, eight = recorded(tmp_path / "one"), recorded(tmp_path / "eight", 8, mapping="batch=8")
    found = compare_folders(one, eight)
    assert str(found.mapping and found.mapping[1]) == "batch=8"
    assert found.equal or [x.module for x in found.origins] == ["0"]  # by the processor, one row may be summed otherwise


def chained_product(slices: int) -> Callable[[Any, Any], Any]:
    """Return a product of f32 matrices: each slice of K is a chain of fused multiply-adds, and the slices are added in turn."""
    plan = replace(FMAS, m=8, n=32, k=64, slices=(64 // slices,) * slices if slices > 1 else ())
    return lambda a, b: torch.from_numpy(plan(a.detach().numpy(), b.detach().numpy()))


def test_two_machines_are_compared_by_their_files(tmp_path: Path) -> None:
    """The product of each machine is planted in torch; the cause comes from the saved operands alone."""
    for name, slices in (("one", 1), ("other", 4)):
        library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.impl("mm", chained_product(slices), "CPU")
        try:
            recorded(tmp_path / name, 8, save=["aten.mm"])
        finally:
            library._destroy()
    (origin,) = compare_folders(tmp_path / "one", tmp_path / "other").origins
    assert (origin.module, origin.cause.kind, origin.cause.verified) == ("0", "split_k", True)
    assert origin.cause.text == "no split against split-K 4 (f32 partial sums)"


def test_a_run_that_crashes_leaves_its_operations(tmp_path: Path) -> None:
    path = recorded(tmp_path) / "trace.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]) + '{"number":1,"na')
    trace = read_trace(tmp_path)
    assert (len(trace.operations), trace.complete) == (1, False)


def test_a_limit_ends_the_recording(tmp_path: Path) -> None:
    trace = read_trace(recorded(tmp_path, limit=1))
    assert ([x.packet for x in trace.operations], trace.stopped) == (["aten.mm", "return"], "--limit 1 reached")


@pytest.mark.parametrize("trains", [True, False])
def test_steps_are_optimizer_steps_or_calls_without_an_optimizer(trains: bool, tmp_path: Path) -> None:
    """With an optimizer, the recording ended after the first forward call."""
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if trains else None
    with accprobe.trace.record(tmp_path / "trace", steps=1):
        for _ in range(2):
            model(torch.ones(1, 8)).sum().backward()
            if optimizer:
                optimizer.step()
    trace = read_trace(tmp_path / "trace")
    phases = dict.fromkeys(x.phase for x in trace.operations if x.name != "return")
    assert list(phases) == (["forward", "backward", "optimizer"] if trains else ["forward"])
    assert (trace.stopped, sum(x.packet == "aten.addmm" for x in trace.operations)) == ("--steps 1 reached", 1)


def edited(field: str, value: Any) -> Callable[[list[Any]], None]:
    return lambda lines: lines[1].__setitem__(TracedOperation._fields.index(field), value)


def edited_input(field: str, value: Any) -> Callable[[list[Any]], None]:
    return lambda lines: lines[1][INPUTS][0].__setitem__(field, value)


INPUTS, OUTPUTS = (TracedOperation._fields.index(name) for name in ("inputs", "outputs"))

HOSTILE: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "another format": (lambda lines: lines[0].update(format="pickle"), "format: Input should be 'accprobe trace'"),
    "a later version": (lambda lines: lines[0].update(version=99), "of version 1: version: Input should be 1"),
    "a number alone": (lambda lines: lines.__setitem__(1, [0]), "line 2: 1: Field required"),
    "numbers out of order": (edited("number", 7), "operation 0 is missing"),
    "a long name": (edited("name", "x" * 100_000), "1: String should have at most"),
    "an enormous tensor": (edited_input("shape", [1 << 40, 1 << 40]), "too large"),
    "a negative size": (edited_input("shape", [-1, 64]), "greater than or equal to 0"),
    "no strides": (edited_input("strides", []), "has no strides for it"),
    "a tensor of two fields": (edited("inputs", [{"id": 1, "hash": "x"}]), "4.0.shape: Field required"),
    "an operation too few": (lambda lines: lines.pop(2), "operation 1 is missing"),
    "an end too early": (lambda lines: lines.pop(3), "operation 2 is missing"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_made_up_trace_is_one_sentence(name: str, tmp_path: Path) -> None:
    change, sentence = HOSTILE[name]
    path = recorded(tmp_path) / "trace.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RecordingError, match=sentence) as error:
        read_trace(tmp_path)
    assert "\n" not in str(error.value)


RAW = {
    "deep JSON": (b"[" * 100_000 + b"\n", "recursion limit"),
    "a long line": (b'{"format": "accprobe trace", "version": 1}\n"' + b"x" * MOST_LINE + b'"\n', "line 2: longer than"),
    "nothing": (b"", "not a trace of accprobe"),
}


@pytest.mark.parametrize("name", RAW)
def test_other_content_is_one_sentence(name: str, tmp_path: Path) -> None:
    content, sentence = RAW[name]
    (tmp_path / "trace.jsonl").write_bytes(content)
    with pytest.raises(RecordingError, match=sentence):
        read_trace(tmp_path)


def test_a_value_that_is_its_own_input_ends(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a") / "trace.jsonl"
    recorded(tmp_path / "b")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for operation in lines[1:3]:
        for values in (operation[INPUTS], operation[OUTPUTS]):
            values[0].update(id=9, hash="f" * 32)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert not compare_folders(tmp_path / "a", tmp_path / "b").equal


@pytest.mark.parametrize("cut", ["a", "b"])
def test_a_record_that_ends_early_is_never_called_equal(cut: str, tmp_path: Path) -> None:
    for name in "ab":
        recorded(tmp_path / name)
    path = tmp_path / cut / "trace.jsonl"
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:2]))
    result = invoke("trace", "compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert result.exit_code == 1
    assert f"the record ends early: side {cut.upper()} after 1 operation;" in result.output


def test_a_script_that_raises_leaves_a_record_that_is_called_incomplete(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import torch\ntorch.relu(torch.ones(3))\nraise ValueError\n")
    with pytest.raises(AccprobeError, match="raises ValueError"):
        record_script(tmp_path / "s.py", [], tmp_path / "b")
    recorded(tmp_path / "a")
    result = invoke("trace", "compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert result.exit_code == 1
    assert "side B is incomplete: its program raised ValueError, after 2 operations" in result.output


def test_a_damaged_file_of_operands_is_exit_status_2(tmp_path: Path) -> None:
    for name in "ab":
        recorded(tmp_path / name, save=["*"])
    (tmp_path / "b" / "operands.safetensors").write_bytes(b"\xff" * 64)
    result = invoke("trace", "compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert (result.exit_code, result.output.count("\n")) == (2, 1)


@pytest.mark.parametrize("form", ["terminal", "json", "html", "junit"])
def test_every_form_has_the_same_verdict(form: str, tmp_path: Path) -> None:
    recorded(tmp_path / "a")
    recorded(tmp_path / "b", 2)
    for other, status in (("a", 0), ("b", 1)):
        result = invoke("trace", "compare", str(tmp_path / "a"), str(tmp_path / other), "--format", form)
        assert result.exit_code == status
        assert ("equal: 2 operations" in result.output or '"equal": true' in result.output) == (not status and form != "junit")


def test_a_part_that_was_not_recorded_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        recorded(tmp_path / name)
    with pytest.raises(AccprobeError, match="b has hashes of whole tensors only: record it with --map batch=8"):
        compare_folders(tmp_path / "a", tmp_path / "b", "batch=1:8")


@pytest.mark.parametrize(
    ("line", "cause"),
    [("y = y.to(torch.bfloat16).float()", "an extra cast to bfloat16"), ("y = y.flip(0)", "aten.flip")],
)
def test_an_operation_of_one_side_is_not_called_compiled_code(line: str, cause: str, tmp_path: Path) -> None:
    for name, more in (("a", ""), ("b", line)):
        script = tmp_path / f"{name}.py"
        script.write_text(f"import torch\ny = torch.linspace(0, 1, 8)\n{more}\nprint(torch.relu(y * 3))\n")
        record_script(script, [], tmp_path / name)
    (first, *_) = compare_folders(tmp_path / "a", tmp_path / "b").origins
    assert cause in first.cause.text
    assert not first.cause.verified


def test_operands_that_nothing_matches_are_announced(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import torch\ntorch.nn.Linear(8, 4)(torch.ones(2, 8))\n")
    words = ["trace", "record", "-o", str(tmp_path / "t"), "--save", "aten.mm", "--save", "aten.addmm", str(tmp_path / "s.py")]
    result = invoke(*words)
    assert result.exit_code == 0
    assert "no operation matches --save aten.mm:" in result.stderr
    assert "operands of 1 operation saved" in result.stderr
    count = len(read_trace(tmp_path / "t").operations)
    result = invoke(*words[:4], "--save", str(count - 1), words[-1])
    assert f"no operation matches --save {count - 1}:" in result.stderr  # it is the last, "return", which has no operands


@pytest.mark.parametrize("name", ["aten.from_file.default", "aten.set_.source_Tensor", "aten.__class__.default", "os.system"])
def test_only_functions_of_tensors_are_called_from_a_folder(name: str, tmp_path: Path) -> None:
    for folder in "ab":
        path = recorded(tmp_path / folder, save=["*"]) / "trace.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[1][1], lines[1][OUTPUTS][0]["hash"] = name, folder * 32
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (origin, *_) = compare_folders(tmp_path / "a", tmp_path / "b").origins
    assert [side.calls for side in origin.sides] == [(), ()]
    assert not origin.cause.verified


def test_an_earlier_trace_is_kept_beside_a_new_one(tmp_path: Path) -> None:
    """Its operands too, which are not those of the new trace."""
    recorded(tmp_path, save=["*"])
    before = {f"{path.name}~": path.read_bytes() for path in tmp_path.iterdir()}
    recorded(tmp_path, batch=2)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name: after[name] for name in before} == before
    assert after.keys() == {*before, "trace.jsonl"}
    recorded(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"trace.jsonl", "trace.jsonl~"}  # no operands of the first one


def test_text_of_a_trace_cannot_control_a_terminal(tmp_path: Path) -> None:
    path = recorded(tmp_path) / "trace.jsonl"
    path.write_text(path.read_text().replace("aten.mm.default", "aten.mm\\u001b[2J"))
    assert read_trace(tmp_path).operations[0].name == "aten.mm␛[2J"


def test_a_script_without_torch_leaves_the_earlier_trace(tmp_path: Path) -> None:
    recorded(tmp_path / "t", save=["*"])
    before = {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()}
    (tmp_path / "s.py").write_text("print(1)\n")
    result = invoke("trace", "record", "-o", str(tmp_path / "t"), "--save", "*", str(tmp_path / "s.py"))
    assert result.exit_code == 2
    assert f"the earlier trace in {tmp_path / 't'} stays" in result.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()} == before


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
def of_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of one process and of two ranks, KIND/RANKS.RANK: the first rank also runs alone."""
    folder = tmp_path_factory.mktemp("ranks")
    running = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), str(folder)]) for rank in (0, 1)]
    assert [each.wait(120) for each in running] == [0, 0]
    return folder


SUMS = {"c10d": "c10d.allreduce_", "functional": "_c10d_functional.all_reduce"}


@pytest.mark.parametrize("kind", SUMS)
def test_a_rank_is_compared_with_the_whole_run(kind: str, of_ranks: Path) -> None:
    """The column-parallel layer gives the same words; the row-parallel one is the origin, together with its all-reduce."""
    found = compare_folders(of_ranks / kind / "1.0", of_ranks / kind / "2.1")
    (origin,) = found.origins
    assert [x.packet for x in origin.left] == ["aten.mm"]
    assert [x.packet for x in origin.right][:2] == ["aten.mm", SUMS[kind]]
    assert (origin.cause.kind, found.states[0][0]) == ("split_k", "equal")
    reduced = [
        next(x for x in read_trace(of_ranks / kind / f"2.{rank}").operations if x.packet == "aten.tanh") for rank in (0, 1)
    ]
    assert reduced[0].inputs[0].hash == reduced[1].inputs[0].hash  # the sum, not what each rank added

"""Dumps of other tools: the first value that differs is located, and a file that somebody made up gets one sentence."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from commands import invoke

from accprobe.errors import AccprobeError, RecordingError
from accprobe.trace import compare_folders, hash_of
from accprobe.trace.dumps import read_any

torch = pytest.importorskip("torch")

CAUSE = "not modelled: the dump has no operands"


def titan(path: Path, silu: str = "3.125000e+01") -> Path:
    """Write a log as torchtitan's `dump_captures_to_file` does, of two products and an activation between them."""
    blocks = [
        ("layers.0.w1/op_0_mm", "[8, 16]", "1.500000e+02", "1.000000e+01, 2.000000e+01"),
        ("layers.0/op_0_silu", "[8, 16]", silu, "1.500000e+02"),
        ("layers.0.w2/op_0_mm", "[8, 4]", f"{float(silu) * 2:.6e}", f"{silu}, 3.000000e+01"),
    ]
    text = "Total captured activations: 3\nExcluded ops dispatched: t, view\n" + "=" * 80 + "\n\n"
    for key, shape, output, inputs in blocks:
        text += f"[{key}]\n  Shape: torch.Size({shape}), Dtype: torch.bfloat16\n  L2 norm: 1.0e+00\n"
        text += f"  Output hash: {output}\n  Input hashes: {inputs}\n  Location: common/feed_forward.py:12\n\n"
    path.write_text(text)
    return path


def debug_mode(path: Path, middle: Any, **options: Any) -> Path:
    from torch.utils._debug_mode import DebugMode

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), middle, torch.nn.Linear(16, 4))
    x = torch.randn(8, 16)
    recording = DebugMode(record_nn_module=True, record_output=True)
    with torch.no_grad(), recording, DebugMode.log_tensor_hashes(**options):
        model(x)
    path.write_text(recording.debug_string())
    return path


def sglang(folder: Path, values: dict[str, Any], **tags: Any) -> Path:
    """Write files as SGLang's `_dump_single` does."""
    folder.mkdir()
    for i, (name, value) in enumerate(values.items()):
        full = {"step": 0, "rank": 0, "dump_index": i + 1, "name": name, "recompute_status": "disabled", **tags}
        file = "___".join(f"{key}={x}" for key, x in full.items()) + ".pt"
        torch.save({"value": value, "meta": {**full, "world_size": 1}}, folder / file)
    return folder


def test_calls_without_results_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "debug.log"
    lines = (
        "  aten::relu(t: f32[2])  ->  t: f32[2]  # {'input_hash': (('1a',), {}), 'hash': '2b'}",
        "  aten::record_stream(t: f32[2])  ->  None  # {'input_hash': (('2b',), {}), 'hash': None}",
    )
    path.write_text("\n".join(lines))
    assert [x.name for x in read_any(path).operations] == ["aten.relu"]


def test_torchtitan_logs_name_the_first_difference(tmp_path: Path) -> None:
    found = compare_folders(titan(tmp_path / "a.log"), titan(tmp_path / "b.log", "3.125001e+01"))
    assert [(x.module, x.operation, x.cause.text) for x in found.origins] == [("layers.0", "silu", CAUSE)]
    assert found.count("consequence") == 1


def test_equal_norms_are_not_called_equal(tmp_path: Path) -> None:
    result = invoke("trace", "compare", *(str(titan(tmp_path / name)) for name in "ab"))
    assert result.exit_code == 0
    assert "no difference found: 3 operations" in result.output
    assert "equal norms do not mean equal bits" in " ".join(result.output.split())


HASHES = {
    "bits": ({"hash_fn": hash_of, "hash_inputs": True}, "DebugMode with hashes"),
    "norms": ({"hash_inputs": True}, "DebugMode with norms"),
    "xor": ({"hash_fn": "hash_tensor", "hash_inputs": True}, "DebugMode with XOR sums"),
}


@pytest.mark.parametrize("name", HASHES)
def test_debug_mode_logs_name_the_first_difference(name: str, tmp_path: Path) -> None:
    options, source = HASHES[name]
    a, b = (
        debug_mode(tmp_path / file, torch.nn.GELU(approximate), **options)
        for file, approximate in (("a.log", "none"), ("b.log", "tanh"))
    )
    assert read_any(a).source == source
    found = compare_folders(a, b)
    assert [(x.module, x.operation, x.cause.text) for x in found.origins] == [("1", "aten.gelu", CAUSE)]
    assert found.count("consequence") >= 1
    assert bool(found.traces[0].lacks) == (source != "DebugMode with hashes")
    assert [tuple(v.shape) for v in found.origins[0].left[0].outputs] == [(8, 16)]


def test_a_kernel_of_triton_is_an_operation(tmp_path: Path) -> None:
    """As `_TritonKernelCall.render` writes it."""
    path = tmp_path / "log"
    path.write_text(
        "  [triton] triton_poi_fused_0(in_ptr0=t: f32[8, 4], out_ptr0=t: f32[8, 4], xnumel=32)\n"
        "    # pre-kernel hashes: {in_ptr0: 1.5, out_ptr0: 0.0}\n    # post-kernel hashes: {in_ptr0: 1.5, out_ptr0: 2.5}\n\n"
    )
    (operation,) = read_any(path).operations
    assert (operation.name, operation.inputs[0].hash, operation.outputs[0].shape) == (
        "triton.triton_poi_fused_0",
        "f32 1.5",
        (8, 4),
    )


def test_sglang_dumps_name_the_first_value_that_differs(tmp_path: Path) -> None:
    x = torch.randn(8, 16)
    values = {
        "input_ids": torch.arange(8),
        "non_intrusive__model.layers.0.mlp.inputs.0": x,
        "non_intrusive__model.layers.0.mlp.output": x * 2,
        "non_intrusive__model.layers.0.output": x * 3,
        "rids": ["a request"],
    }
    other = values | {"non_intrusive__model.layers.0.mlp.output": x * 2.5, "non_intrusive__model.layers.0.output": x * 3.5}
    found = compare_folders(sglang(tmp_path / "a", values, layer_id=0), sglang(tmp_path / "b", other, layer_id=0))
    assert [(x.module, x.operation) for x in found.origins] == [("layers.0", "model.layers.0.mlp.output")]
    assert (found.operations, found.count("consequence")) == ((4, 4), 1)


def test_dumps_of_two_tools_are_not_compared(tmp_path: Path) -> None:
    dump = sglang(tmp_path / "a", {"hidden": torch.ones(4)})
    with pytest.raises(AccprobeError, match="hash values in different ways"):
        compare_folders(dump, titan(tmp_path / "b.log"))


LOGS = {
    "a page": ("<!DOCTYPE html>\n", "is an HTML page; give the two"),
    "no hashes": ("    aten::mm(t: f32[2, 4], t: f32[4, 4])  ->  t: f32[2, 4]\n", "neither a trace nor a log"),
    "a key of torchtitan": ("Total captured activations: 1\n[x]\n", "is not a heading of torchtitan"),
    "an enormous tensor": ("  aten::t(t: f32[9999999999, 9999999999])  # {'hash': 1.0}\n", "which is too large"),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_is_none_is_one_sentence(name: str, tmp_path: Path) -> None:
    text, sentence = LOGS[name]
    (tmp_path / "log").write_text(text)
    with pytest.raises(RecordingError, match=sentence):
        read_any(tmp_path / "log")


class Command:
    def __reduce__(self) -> Any:
        return print, ("executed",)


def hostile_sglang(folder: Path, name: str) -> None:
    sglang(folder, {"hidden": torch.ones(4)})
    (path,) = folder.glob("*.pt")
    if name == "code":
        torch.save({"value": Command()}, path)
    elif name == "a larger tensor than its file":
        torch.save({"value": torch.ones(1).expand(1 << 40)}, path)
    elif name == "a name":
        path.rename(folder / "a___b.pt")
    elif name == "text":
        path.write_text("no file of torch")
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data/0", bytes(1 << 24))


SGLANG = {
    "code": "holds Python objects",
    "a larger tensor than its file": "larger than its file",
    "a name": "is not a name of SGLang's dumper",
    "text": "no file of torch.save",
    "compression": "is compressed",
}


@pytest.mark.parametrize("name", SGLANG)
def test_a_made_up_dump_is_one_sentence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile_sglang(tmp_path / "dump", name)
    with pytest.raises(RecordingError, match=SGLANG[name]) as error:
        read_any(tmp_path / "dump")
    assert "\n" not in str(error.value)
    assert "executed" not in capsys.readouterr().out

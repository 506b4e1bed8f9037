"""Compare runs of transformers models with random weights on the first GPU, and measure the overhead of recording.

    python benchmarks/trace.py -o FOLDER                 # every case
    python benchmarks/trace.py -o FOLDER --only batch    # cases whose name has this text
    python benchmarks/trace.py -o FOLDER record llama    # record one model, to compare two machines by `accprobe trace compare`
    python benchmarks/trace.py -o FOLDER --only overhead # what recording costs, 20 s on a GPU
    python benchmarks/trace.py --tiny                    # small models, on a CPU

Models: Llama of bf16 and of f32 (4 layers, hidden 2048), Mixtral, Mamba, two FP8 layers; weights and tokens are
drawn on the CPU with one seed.
Each case becomes a line of FOLDER/trace.jsonl: seconds, counts of operations, origins with causes, whether they are verified.
Seconds on an H200 (results/trace/h200.json): llama batch 1 against 2, 8, 16: 7, 4, 5 (the first compiles); allow_tf32 11;
torch.compile 30; prefill against decode 2; mixtral 2; mamba 1; llama-f32 batch 5; fp8 batch 0.3; overhead 20.
Recording took 2.8 to 3.3 times the eager run of 1,024 tokens (3.0 to 7.1 ms) on fourteen hosts and 4.5 times on one.
torch's own empty mode, which sees each operation, took 1.8 to 2.0 times on six of them. For 16,384 tokens recording took
1.4 times.
A case that fails leaves its error there. Operands of origins without a verified cause are saved, at most 8 MB.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import accprobe.trace
from accprobe.operands.safetensors import write_tensors
from accprobe.trace import ProgramRun, pause_recording, run_both
from accprobe.trace.compare import TraceComparison
from accprobe.trace.folders import array_of
from accprobe.trace.hash_kernel import find_memory_layout, open_hash_kernel
from accprobe.trace.hashing import HashQueue, hash_of
from accprobe.trace.recorder import Recorder, torch_versions
from accprobe.trace.records import TensorValue, TraceWriter
from accprobe.trace.summary import count_operations, findings_json, trace_headline

TOKENS, BATCH = 128, 16
MOST_KEPT_BYTES = 8 << 20
MATMUL = "torch.backends.cuda.matmul"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

SIZES = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 4, "num_attention_heads": 16, "vocab_size": 8192}
TINY = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512}


def llama(sizes: dict[str, int]) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**sizes, max_position_embeddings=512))


def mixtral(sizes: dict[str, int]) -> Any:
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {**sizes, "num_hidden_layers": 2, "intermediate_size": sizes["intermediate_size"] // 4}
    config = MixtralConfig(**sizes, num_key_value_heads=4, num_local_experts=8, max_position_embeddings=512)
    return MixtralForCausalLM(config)


def mamba(sizes: dict[str, int]) -> Any:
    from transformers import MambaConfig, MambaForCausalLM

    hidden, vocabulary = sizes["hidden_size"] // 2, sizes["vocab_size"]
    return MambaForCausalLM(MambaConfig(hidden_size=hidden, num_hidden_layers=2, vocab_size=vocabulary, use_mambapy=False))


class Fp8Layers(torch.nn.Module):
    """Two linear layers in FP8, with a scale for each token and each output channel."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        hidden, intermediate = sizes["hidden_size"], sizes["intermediate_size"]
        self.embedding = torch.nn.Embedding(sizes["vocab_size"], hidden)
        self.up, self.down = (
            torch.nn.Parameter(torch.randn(x, y) / 64) for x, y in ((intermediate, hidden), (hidden, intermediate))
        )

    def forward(self, tokens: Any, use_cache: bool = False) -> Any:
        x = self.embedding(tokens).flatten(0, 1)
        for weight in (self.up, self.down):
            (a, of_a), (b, of_b) = quantised(x), quantised(weight)
            x = torch._scaled_mm(a, b.t(), of_a, of_b.t(), out_dtype=torch.bfloat16)
        return SimpleNamespace(logits=x.reshape(*tokens.shape, -1))


def quantised(x: Any) -> tuple[Any, Any]:
    scale = x.abs().amax(-1, keepdim=True).float() / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


class Model:
    """A model on its device, and functions that run it on the same tokens."""

    def __init__(self, make: Callable[[dict[str, int]], Any], dtype: torch.dtype, sizes: dict[str, int]) -> None:
        torch.manual_seed(0)
        self.model = make(sizes).eval().to(dtype).to(DEVICE)
        drawn = torch.randint(0, 512, (BATCH, 32 if sizes is TINY else TOKENS), generator=torch.Generator().manual_seed(1))
        self.tokens = drawn.to(DEVICE)

    def forward(self, batch: int = 1) -> Any:
        with torch.no_grad():
            return self.model(self.tokens[:batch], use_cache=False).logits

    def decode(self) -> Any:
        with torch.no_grad():
            with pause_recording():
                past = self.model(self.tokens[:1, :-1], use_cache=True).past_key_values
            return self.model(self.tokens[:1, -1:], past_key_values=past, use_cache=True).logits


MODELS: dict[str, tuple[Callable[[dict[str, int]], Any], torch.dtype]] = {
    "llama": (llama, torch.bfloat16),
    "llama-f32": (llama, torch.float32),
    "mixtral": (mixtral, torch.bfloat16),
    "mamba": (mamba, torch.bfloat16),
    "fp8": (Fp8Layers, torch.bfloat16),
}


@cache
def model(name: str, tiny: bool) -> Model:
    return Model(*MODELS[name], TINY if tiny else SIZES)


def batches(name: str, tiny: bool, batch: int) -> TraceComparison:
    forward = model(name, tiny).forward
    one, other = (ProgramRun(function=forward, keywords={"batch": x}) for x in (1, batch))
    return run_both(one, other, f"batch=1:{batch}", with_fixes=True)


def compiled(name: str, tiny: bool) -> TraceComparison:
    forward = model(name, tiny).forward
    return run_both(ProgramRun(function=forward), ProgramRun(function=forward, backend="inductor"))


def cached(name: str, tiny: bool) -> TraceComparison:
    of = model(name, tiny)
    return run_both(ProgramRun(function=of.forward), ProgramRun(function=of.decode), "token=last")


def flagged(name: str, tiny: bool, flag: str) -> TraceComparison:
    forward = model(name, tiny).forward
    one, other = (ProgramRun(function=forward, flags={f"{MATMUL}.{flag}": x}) for x in (True, False))
    return run_both(one, other, with_fixes=True)


def cases(tiny: bool) -> Iterator[tuple[str, Callable[[], TraceComparison]]]:
    """Yield the name of each case and the function that runs it, the most important first."""
    for batch in (2, 8, 16):
        yield f"llama: batch 1 against {batch}", partial(batches, "llama", tiny, batch)
    yield "llama-f32: allow_tf32 True against False", lambda: flagged("llama-f32", tiny, "allow_tf32")
    yield "llama: eager against torch.compile", lambda: compiled("llama", tiny)
    yield "llama: prefill against decode", lambda: cached("llama", tiny)
    yield "mixtral: batch 1 against 8", lambda: batches("mixtral", tiny, 8)
    yield "mamba: batch 1 against 8", lambda: batches("mamba", tiny, 8)
    flag = "allow_bf16_reduced_precision_reduction"
    yield f"llama: {flag} True against False", lambda: flagged("llama", tiny, flag)
    yield "llama-f32: batch 1 against 8", lambda: batches("llama-f32", tiny, 8)
    yield "fp8: batch 1 against 8", lambda: batches("fp8", tiny, 8)


class EmptyMode(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def overhead(tiny: bool, batch: int) -> dict[str, Any]:
    """Measure a forward pass: eager, under an empty dispatch mode, recorded, and recorded and written. Best of five rounds.

    cpu_ms: of the thread that calls torch. Only "written" has the transfer of hashes and the making of lines.
    """
    of, passes = model("llama", tiny), 5
    tokens = of.tokens[:8].repeat(batch // 8, 1)

    def timed(after: Callable[[], Any] = lambda: None) -> tuple[float, float]:
        synchronize()
        wall, cpu = time.perf_counter(), time.thread_time()
        for _ in range(passes):
            of.model(tokens, use_cache=False)
        after()
        cpu = time.thread_time() - cpu
        synchronize()
        return (time.perf_counter() - wall) / passes * 1e3, cpu / passes * 1e3

    def empty() -> tuple[float, float]:
        with EmptyMode():
            return timed()

    def recorded(writer: TraceWriter | None = None) -> tuple[float, float]:
        recorder = Recorder(writer=writer)

        def fetch() -> None:
            with pause_recording():
                recorder.finish()

        with recorder.recording():
            of.model(tokens, use_cache=False)  # hashes the weights, and compiles the kernel
            fetch()
            count.append(len(recorder.operations) - 1)
            return timed(fetch if writer else lambda: None)

    count: list[int] = []
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        kinds: dict[str, Callable[[], tuple[float, float]]] = {
            "eager": timed,
            "empty_mode": empty,
            "recorded": recorded,
            "written": lambda: recorded(TraceWriter(Path(folder), "", torch_versions())),
        }
        timed()
        before = peak_memory()
        rounds = [[run() for run in kinds.values()] for _ in range(5)]
    found: dict[str, Any] = {"tokens": tokens.numel(), "operations": count[0]}
    for k, kind in enumerate(kinds):
        found[f"{kind}_ms"], found[f"{kind}_cpu_ms"] = (min(each[k][i] for each in rounds) for i in range(2))
    found["ratio"] = found["recorded_ms"] / found["eager_ms"]
    found["memory_mib"] = [before / 2**20, peak_memory() / 2**20]
    found["hash_kernel"] = DEVICE == "cuda" and open_hash_kernel(torch.device("cuda", torch.cuda.current_device())) is not None
    return found


def same_hashes() -> dict[str, Any]:
    """Compare hashes of the GPU with hashes of the CPU, for tensors of many types, sizes and strides."""
    generator = torch.Generator().manual_seed(3)
    tensors = []
    for dtype in (torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.complex64, torch.float8_e4m3fn):
        for shape in ((), (1,), (5,), (4099,), (70_001,), (33, 65, 7), (3, 4, 5, 6, 7)):
            drawn = torch.randint(-128, 127, (*shape, dtype.itemsize), dtype=torch.int8, generator=generator)
            each = drawn.view(dtype).reshape(shape)
            tensors += [each, each.transpose(0, -1)] if each.dim() > 1 else [each]
            tensors += [each[1:]] if each.dim() and len(each) > 1 else []
            tensors += [each[..., ::2]] if each.dim() else []
    queue, values = HashQueue(), [TensorValue(0, "", (), (), "") for _ in tensors]
    for each, value in zip(tensors, values, strict=True):
        moved = torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=DEVICE)
        moved.copy_(each)
        queue.add(value, moved, find_memory_layout(moved.shape, moved.stride(), moved.dtype), moved.untyped_storage())
    queue.fetch()
    wrong = [f"{x.dtype} {list(x.shape)} {x.stride()}" for x, y in zip(tensors, values, strict=True) if hash_of(x) != y.hash]
    return {"tensors": len(tensors), "different": wrong}


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def peak_memory() -> int:
    if DEVICE == "cpu":
        return 0
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return int(peak)


def described(found: TraceComparison) -> dict[str, Any]:
    """Return the line of a comparison, and print it."""
    verified = sum(each.cause.verified for each in found.origins)
    print(
        f"  {trace_headline(found)}\n  {count_operations(found)}; {verified} of {len(found.origins)} causes verified",
        flush=True,
    )
    for each in found.origins:
        cause = each.cause
        print(
            f"    {each.module} {each.operation}: {each.differing} of {each.of}: {cause.kind}: {cause.text};"
            f" {'verified' if cause.verified else 'NOT verified'}{f'; fixes: {cause.fixes}' if cause.fixes else ''}",
            flush=True,
        )
    names = [[[x.packet, x.module] for x in trace.operations][:3000] for trace in found.traces]
    return {
        "first": trace_headline(found),
        "verified": verified,
        "counts": count_operations(found),
        **findings_json(found),
        "names": names,
    }


def unverified_operands(found: TraceComparison, room: int) -> dict[str, Any]:
    """Return operands and results of origins that have no verified cause, as arrays by name, of at most `room` bytes."""
    arrays: dict[str, Any] = {}
    for i, each in enumerate(found.origins):
        if each.cause.verified or each.sides is None:
            continue
        for name, side in zip("AB", each.sides, strict=True):
            values = [(f"{number}.in{n}", x) for number, call in enumerate(side.calls) for n, x in enumerate(call.operands())]
            values += [("result", side.value)] if side.value is not None else []
            for where, operand in values:
                array = array_of(operand.tensor)
                if array is not None and array.nbytes <= room:
                    arrays[f"{i}.{name}.{where}"] = array
                    room -= array.nbytes
    return arrays


def compared(operations: int = 1000) -> dict[str, Any]:
    """Measure the comparison of two recorded folders of so many operations. One operation differs."""
    from accprobe.trace.folders import compare_folders

    def run(folder: str, factor: float) -> Path:
        x = torch.ones(8, 8)
        with accprobe.trace.record(Path(folder) / str(factor)):
            for i in range(operations):
                x = x * (factor if i == operations // 2 else 1.0625)
                x = x / x.max() if i % 50 == 49 else x
        return Path(folder) / str(factor)

    with tempfile.TemporaryDirectory() as folder:
        both = run(folder, 1.0625), run(folder, 1.125)
        start = time.perf_counter()
        found = compare_folders(*both)
        return {"origins_found": len(found.origins), "compare_s": time.perf_counter() - start, "limit_s": 2}


def record(name: str, folder: Path) -> None:
    """Record one forward pass of a model with two layers, and the operands of the products of its first layer and its head."""
    sizes = {**SIZES, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2, "vocab_size": 2048}
    of = Model(*MODELS[name], sizes)
    with accprobe.trace.record(folder, save=["model.layers.0.*proj", "lm_head"]):
        of.forward(1)
    print(f"{name}: {folder}: {sum(x.stat().st_size for x in folder.iterdir()) / 2**20:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", default="compare", choices=("compare", "record"))
    parser.add_argument("model", nargs="?", default="llama", choices=tuple(MODELS))
    parser.add_argument("--tiny", action="store_true", help="small models")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--seconds", type=float, default=330, help="start no case after so many seconds")
    parser.add_argument("-o", "--output", type=Path, default=Path("trace-out"), help="folder to write")
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    if chosen.mode == "record":
        record(chosen.model, chosen.output / f"{chosen.model}-trace")
        return
    start, room = time.perf_counter(), MOST_KEPT_BYTES
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"
    arrays: dict[str, Any] = {}
    every: dict[str, Callable[[], Any]] = {
        "overhead: hashes, GPU against CPU": same_hashes,
        "overhead: 8 x 128 tokens": lambda: overhead(chosen.tiny, 8),
        "overhead: 128 x 128 tokens": lambda: overhead(chosen.tiny, 128),
        "comparison of 1,000 operations": compared,
        **dict(cases(chosen.tiny)),
    }
    summary = []
    with (chosen.output / "trace.jsonl").open("w") as file:
        for name, run in every.items():
            before = time.perf_counter()
            if chosen.only not in name or before - start > chosen.seconds:
                continue
            print(name, flush=True)
            line: dict[str, Any] = {"name": name, "torch": torch.__version__, "device": device}
            try:
                found = run()
                if isinstance(found, dict):
                    print(f"  {found}", flush=True)
                    line |= found
                else:
                    line |= described(found)
                    more = {f"{name}.{key}": array for key, array in unverified_operands(found, room).items()}
                    room -= sum(array.nbytes for array in more.values())
                    arrays |= more
                    del found
            except Exception as e:  # the other cases are still of use
                line["error"] = traceback.format_exc()[-3000:]
                print(f"  {type(e).__name__}: {e}", flush=True)
            line["seconds"] = round(time.perf_counter() - before, 2)
            print(f"  {line['seconds']} s", flush=True)
            file.write(json.dumps(line) + "\n")
            file.flush()
            causes = (
                f"{line['verified']} of {len(line['origins'])} verified" if "origins" in line else line.get("error", "")[-80:]
            )
            summary.append(f"{name:60} {line['seconds']:7.1f} s  {' '.join(causes.split())}")
            gc.collect()
    if arrays:
        write_tensors(chosen.output / "unverified.safetensors", arrays)
    print("\n".join(("", *summary)))


if __name__ == "__main__":
    main()

"""What `accprobe trace` finds in models of transformers with random weights, on the first GPU or on the CPU.

    python benchmarks/trace.py -o trace.json
    python benchmarks/trace.py --tiny        # on a CPU, in a minute or two

Models: Llama of bf16 and of f32 (4 layers, hidden 2048), Qwen2-MoE of bf16. Runs: batch 1 against 2, 8 and 16; eager against
torch.compile; prefill against decode with a cache; allow_bf16_reduced_precision_reduction and allow_tf32 on against off. Prints
for each comparison the operations, the origins, how many causes were verified, and the seconds; first the overhead of record.
-o writes it as JSON; operands of origins without a cause are kept beside it (at most 8 MB), for work on the causes offline.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from accprobe.operands.safetensors import write_tensors
from accprobe.trace import ProgramRun, paused, run_both
from accprobe.trace.causes import TraceFindings
from accprobe.trace.folders import array_of
from accprobe.trace.recorder import Recorder
from accprobe.trace.summary import counts, findings_json, trace_headline

TOKENS = 128
MOST_KEPT_BYTES = 8 << 20
MATMUL = "torch.backends.cuda.matmul"


def llama(tiny: bool) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    small = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512}
    large = {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "vocab_size": 8192,
    }
    return LlamaForCausalLM(LlamaConfig(**(small if tiny else large), max_position_embeddings=512))


def moe(tiny: bool) -> Any:
    from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

    small = {"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512}
    large = {
        "hidden_size": 2048,
        "intermediate_size": 4096,
        "num_hidden_layers": 2,
        "num_attention_heads": 16,
        "vocab_size": 8192,
    }
    sizes = small if tiny else large
    return Qwen2MoeForCausalLM(
        Qwen2MoeConfig(
            **sizes,
            num_key_value_heads=4,
            moe_intermediate_size=64 if tiny else 1408,
            shared_expert_intermediate_size=128 if tiny else 5632,
            num_experts=8,
            num_experts_per_tok=2,
            max_position_embeddings=512,
        )
    )


class Model:
    """A model on its device, and functions that run it on the same tokens."""

    def __init__(self, make: Callable[[bool], Any], dtype: torch.dtype, device: str, tiny: bool) -> None:
        torch.manual_seed(0)
        self.model = make(tiny).eval().to(device, dtype)
        self.tokens = torch.randint(0, 512, (16, 32 if tiny else TOKENS), generator=torch.Generator().manual_seed(1)).to(device)
        self.compiled: Any = None

    def forward(self, batch: int = 1) -> Any:
        with torch.no_grad():
            return self.model(self.tokens[:batch], use_cache=False).logits

    def compiled_forward(self, batch: int = 1) -> Any:
        self.compiled = torch.compile(self.model) if self.compiled is None else self.compiled
        with torch.no_grad():
            return self.compiled(self.tokens[:batch], use_cache=False).logits

    def prefill(self) -> Any:
        with torch.no_grad():
            return self.model(self.tokens[:1], use_cache=False).logits

    def decode(self) -> Any:
        with torch.no_grad():
            with paused():
                past = self.model(self.tokens[:1, :-1], use_cache=True).past_key_values
            return self.model(self.tokens[:1, -1:], past_key_values=past, use_cache=True).logits

    def trained(self) -> Any:
        self.model.zero_grad()
        loss = self.model(self.tokens[:2], labels=self.tokens[:2], use_cache=False).loss
        loss.backward()
        return loss


def comparisons(device: str, tiny: bool) -> Iterator[tuple[str, Callable[[], TraceFindings]]]:
    """Name each comparison, and return what runs it. Models are built when their first comparison comes."""
    for name, make, dtype in (
        ("llama bf16", llama, torch.bfloat16),
        ("llama f32", llama, torch.float32),
        ("moe bf16", moe, torch.bfloat16),
    ):
        model = Model(make, dtype, device, tiny)
        forward = model.forward
        for batch in (2, 8, 16) if name == "llama bf16" else (8,):
            sides = ProgramRun(function=forward, keywords={"batch": 1}), ProgramRun(function=forward, keywords={"batch": batch})
            yield f"{name}: batch 1 against {batch}", lambda s=sides, b=batch: run_both(*s, f"batch=1:{b}", with_fixes=True)
        if name != "moe bf16":
            sides = ProgramRun(function=model.prefill), ProgramRun(function=model.decode)
            yield f"{name}: prefill against decode", lambda s=sides: run_both(*s, "token=last")
        if name == "llama bf16":
            flag = f"{MATMUL}.allow_bf16_reduced_precision_reduction"
            sides = ProgramRun(function=forward, flags={flag: True}), ProgramRun(function=forward, flags={flag: False})
            yield f"{name}: {flag} True against False", lambda s=sides: run_both(*s)
            sides = ProgramRun(function=model.trained), ProgramRun(function=model.trained)
            yield f"{name}: training step against itself", lambda s=sides: run_both(*s)
        if name == "llama f32":
            flag = f"{MATMUL}.allow_tf32"
            sides = ProgramRun(function=forward, flags={flag: True}), ProgramRun(function=forward, flags={flag: False})
            yield f"{name}: {flag} True against False", lambda s=sides: run_both(*s)
        sides = ProgramRun(function=forward), ProgramRun(function=model.compiled_forward)
        yield f"{name}: eager against torch.compile", lambda s=sides: run_both(*s)


def overhead(device: str, tiny: bool) -> dict[str, float]:
    """Return the seconds of a forward pass, without recording, and of the first and of a later recorded one."""
    model = Model(llama, torch.bfloat16, device, tiny)

    def seconds(times: int) -> float:
        if device != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            model.forward(8)
        if device != "cpu":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / times

    seconds(3)
    eager = seconds(10)
    recorder = Recorder()
    with recorder.recording():
        first, later = seconds(1), seconds(10)
    return {"eager": eager, "first recorded": first, "later recorded": later, "operations": len(recorder.operations) / 11}


def kept(found: TraceFindings, left: int) -> dict[str, Any]:
    """Return operands and results of origins that have no verified cause, as arrays by name, of at most `left` bytes."""
    arrays: dict[str, Any] = {}
    for i, each in enumerate(found.origins):
        if each.cause.verified or each.sides is None:
            continue
        for name, side in zip("AB", each.sides, strict=True):
            values = [(f"{number}.in{n}", x) for number, call in enumerate(side.calls) for n, x in enumerate(call.operands())]
            values += [("result", side.value)] if side.value is not None else []
            for where, operand in values:
                array = array_of(operand.tensor)
                if array is not None and array.nbytes <= left:
                    arrays[f"{i}.{name}.{where}"] = array
                    left -= array.nbytes
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small models")
    parser.add_argument("--only", default="", help="comparisons whose name has this text")
    parser.add_argument("--seconds", type=float, default=440, help="start no comparison after so many seconds")
    parser.add_argument("-o", "--output", type=Path, help="JSON file to write")
    chosen = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    start = time.perf_counter()
    results: dict[str, Any] = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }
    results["comparisons"], arrays, left = [], {}, MOST_KEPT_BYTES
    if not chosen.only:
        results["overhead"] = overhead(device, chosen.tiny)
        print("overhead", {key: round(value, 5) for key, value in results["overhead"].items()}, flush=True)
    for number, (name, run) in enumerate(comparisons(device, chosen.tiny)):
        if chosen.only not in name or time.perf_counter() - start > chosen.seconds:
            continue
        before = time.perf_counter()
        line: dict[str, Any] = {"name": name}
        try:
            found = run()
        except Exception as e:  # the others are still of use
            line["error"] = traceback.format_exc()[-2000:]
            print(f"\n{name}: {type(e).__name__}: {e}", flush=True)
        else:
            verified = sum(each.cause.verified for each in found.origins)
            share = verified / len(found.origins) if found.origins else 1.0
            line |= {"verified": verified, "share": share, "counts": counts(found), **findings_json(found)}
            line["trace"] = [[side.name, side.module] for trace in found.comparison.traces for side in trace.operations][:4000]
            print(f"\n{name}\n  {trace_headline(found)}\n  {counts(found)}; {verified} verified", flush=True)
            for each in found.origins:
                print(
                    f"    {each.origin.module} {each.origin.operation}: {each.differing} of {each.of}: {each.cause}", flush=True
                )
            more = {f"{number}.{key}": array for key, array in kept(found, left).items()}
            left -= sum(array.nbytes for array in more.values())
            arrays |= more
        line["seconds"] = round(time.perf_counter() - before, 2)
        print(f"  {line['seconds']} s", flush=True)
        results["comparisons"].append(line)
        if chosen.output:
            chosen.output.write_text(json.dumps(results, indent=1))
            write_tensors(chosen.output.with_suffix(".safetensors"), arrays)
    results["seconds"] = time.perf_counter() - start
    if chosen.output:
        chosen.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

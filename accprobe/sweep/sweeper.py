"""`accprobe sweep`: every configuration compiled, run with every mask on every operand set, and compared with its control."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.devices import open_device
from accprobe.errors import DeviceError
from accprobe.records.sweeps import OperandSet, Prediction, SweepRecord
from accprobe.report.report import Report
from accprobe.sweep import masks, prediction
from accprobe.sweep.configurations import SIDE, Configuration, check_k
from accprobe.sweep.kernel import Compiled, GpuBench, compile_configurations, triton_version
from accprobe.sweep.masks import SETS, Operands, Sample, draw_matrices

GPU_SIZE, SIMULATED_SIZE = 2048, 64
"""M and N: large enough to keep a GPU busy, and small enough for a CPU to evaluate."""

SAMPLED = 32
"""Number of rows and of columns of a result on a GPU to predict, with exact sums as the control."""


def sweep(
    device: str,
    configurations: Sequence[Configuration],
    k: int,
    seed: int,
    on_record: Callable[[Report], None],
) -> Report:
    """Return the sweeps of a device, "cuda:0" or "sim:h100", as a report without instructions (`accprobe.records.sweeps`).

    on_record: called with the report so far. Raises AccprobeError if K is not a multiple of a block, ToolMissing without Triton
    or torch, DeviceError without the device.
    """
    started = time.perf_counter()
    triton_version()
    opened = open_device(device, of_gpus=True)
    bench = None if opened.kind == "simulated" else GpuBench(int(device.partition(":")[2] or 0))  # 0 of "auto" and "gpu"
    sweeper = Sweeper(opened.architecture, bench, k, seed)
    check_k(configurations, k)
    report = Report.empty(opened, device, seed)
    records: list[SweepRecord] = []
    on_record(report)
    for record in sweeper.records(configurations):
        records.append(record)
        run = report.run.model_copy(update={"seconds": round(time.perf_counter() - started, 3)})
        report = report.model_copy(update={"run": run, "sweeps": tuple(records)})
        on_record(report)
    return report


class Sweeper:
    """Runs configurations for a compile target on a bench, or without one on the published models of that target."""

    def __init__(self, target: str, bench: GpuBench | None, k: int, seed: int) -> None:
        self._target, self._bench = target, bench
        size = GPU_SIZE if bench else SIMULATED_SIZE
        self.shape = (size, size, k)
        most = SAMPLED if bench else max(self.shape)
        self._sample: Sample = (_spread(self.shape[0], most), _spread(self.shape[1], most))
        self._operands = lru_cache(8)(lambda kind, dtype, size: draw_matrices(kind, dtype, *self.shape, size or 0, seed))
        self._controls = lru_cache(8)(self._control)
        self._predictions = lru_cache(64)(lambda x, chain, kind: prediction.predict_masks(x, chain, self._sampled(x, kind)))

    def records(self, configurations: Sequence[Configuration]) -> Iterator[SweepRecord]:
        """Yield one record per configuration and operand set, in order."""
        for compiled in compile_configurations(configurations, self._target):
            for kind in SETS:
                yield self._record(compiled, kind)

    def _record(self, compiled: Compiled, kind: OperandSet) -> SweepRecord:
        started = time.perf_counter()
        try:
            found: dict[str, Any] = {"reason": compiled.reason} if compiled.reason else self._found(compiled, kind)
        except DeviceError as e:
            found = {"reason": str(e)}
        config, lowering = compiled.configuration, compiled.lowering
        if lowering:
            found |= {"opcodes": lowering.matrix, "lowering": lowering.sequence, "opcode_source": lowering.source}
            found["cubin_sha256"] = lowering.cubin_sha256
        found |= dict(zip("mnk", self.shape, strict=True))
        found |= {name: getattr(config, name) for name in ("block_k", "num_warps", "promote_every")}
        found |= {"block_m": SIDE, "block_n": SIDE}
        return SweepRecord(
            dtype=config.dtype.name,
            operands=kind,
            triton=triton_version(),
            num_stages=compiled.num_stages,
            shared_bytes=compiled.shared_bytes,
            compile_seconds=compiled.seconds,
            seconds=round(time.perf_counter() - started, 3),
            **found,
        )

    def _found(self, compiled: Compiled, kind: OperandSet) -> dict[str, Any]:
        config, lowering = compiled.configuration, compiled.lowering
        chain = prediction.published_chain(self._target, config.dtype, lowering) if lowering else None
        # Warps do not change the predicted results, and promotion does not change the control: configurations share them.
        seen = expected = self._predictions(replace(config, num_warps=1), chain, kind) if chain else None
        if self._bench:
            operands = self._operands(kind, config.dtype, config.block_k if kind == "full-width" else None)
            seen = self._bench.measure(compiled, operands, self._sample)
        if seen is None:
            opcodes = None if lowering is None else ", ".join(lowering.matrix) or "FFMA"
            no_model = f"no model of {opcodes} is published for {self._target}"
            return {"reason": no_model if opcodes else "which opcode it becomes is not known: see `accprobe doctor`"}
        control = self._controls(replace(config, num_warps=1, promote_every=None), kind)
        found: dict[str, Any] = {
            "relative_error": seen.errors[0],
            "tflops": seen.tflops and round(seen.tflops, 2),
            "registers": seen.registers,
            "spills": seen.spills,
            "effective_bits": masks.fraction_bits(seen, control),
            "masks": tuple(enumerate(seen.changed)),
            "errors": tuple(seen.errors),
            "control": tuple(enumerate(control)),
            "control_elements": seen.sampled[0].size,
        }
        if self._bench and chain and expected:
            found["prediction"] = Prediction(
                source=chain.source,
                elements=expected.sampled[0].size,
                differ=int((expected.sampled != seen.sampled).sum()),
                relative_error=expected.errors[0],
                effective_bits=masks.fraction_bits(expected, control),
            )
        return found

    def _sampled(self, config: Configuration, kind: OperandSet) -> Operands:
        whole = self._operands(kind, config.dtype, config.block_k if kind == "full-width" else None)
        rows, columns = self._sample
        return Operands(whole.a[rows], whole.b[columns])

    def _control(self, config: Configuration, kind: OperandSet) -> list[int]:
        """Count what each mask changes in the exact sums of the sampled elements."""
        partials = prediction.exact_partials(config, self._sampled(config, kind))
        return masks.changed(masks.totals(partials))


def _spread(size: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` indices below `size`, spread over the tiles."""
    index = np.arange(min(size, most))
    step = size // len(index)
    return index * step + index % step

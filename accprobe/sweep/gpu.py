"""The sweep's kernel on a GPU, with torch and Triton. Each launch runs the cubin that was disassembled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from accprobe.errors import AccprobeError, DeviceError
from accprobe.gemm.callables.arrays import TorchArrays
from accprobe.sweep.compilation import Compiled
from accprobe.sweep.configurations import SIDE, Dtype
from accprobe.sweep.masks import CUTS, Measured, Operands, Sample, mask

TIMED_LAUNCHES, TIMED_ROUNDS = 10, 3
"""The speed is that of the fastest of a few rounds of consecutive launches."""


class GpuBench:
    """GPU number `index`. Raises ToolMissing without a torch that is built for CUDA, DeviceError without that GPU."""

    def __init__(self, index: int) -> None:
        self._arrays = TorchArrays(f"cuda:{index}")
        self._uploaded: tuple[Operands, tuple[Any, Any, Any]] | None = None
        import torch

        self._torch: Any = torch
        with self._guard("cannot be opened"):
            torch.cuda.get_device_properties(index)

    def measure(self, compiled: Compiled, operands: Operands, sample: Sample) -> Measured:
        """Launch without a mask and with each, count the changed elements on the GPU, and time it. Raises DeviceError."""
        torch, config = self._torch, compiled.configuration
        with self._guard(f"failed on {config.dtype.name} at block-K {config.block_k} with {config.num_warps} warps"):
            a, b, exact = self._upload(config.dtype, operands)
            rows, columns = (torch.from_numpy(each).to(self._arrays.device) for each in sample)
            whole = self._launched(compiled, a, b, mask(0)).view(torch.int32)
            counts, errors, sampled = [], [], []
            for cut in CUTS:
                each = self._launched(compiled, a, b, mask(cut))
                errors.append(torch.linalg.vector_norm(each - exact))
                patterns = each.view(torch.int32)
                counts.append((patterns != whole).sum())
                sampled.append(patterns[rows[:, None], columns[None, :]])
            return Measured(
                changed=torch.stack(counts).tolist(),
                errors=(torch.stack(errors) / torch.linalg.vector_norm(exact)).tolist(),
                sampled=torch.stack(sampled).cpu().numpy().view(np.uint32),
                tflops=self._tflops(compiled, a, b),
                registers=compiled.kernel.n_regs,
                spills=compiled.kernel.n_spills,
            )

    def _upload(self, dtype: Dtype, operands: Operands) -> tuple[Any, Any, Any]:
        """Return A and B on the GPU, and their product in f64, exact for the drawn 8-bit operands."""
        if self._uploaded is None or self._uploaded[0] is not operands:
            a, b = (self._arrays.operand(role, each, dtype.format) for role, each in zip("ab", operands, strict=True))
            self._uploaded = operands, (a, b, a.double() @ b.double().T)
        return self._uploaded[1]

    def _launched(self, compiled: Compiled, a: Any, b: Any, mask: int) -> Any:
        c = self._torch.full((len(a), len(b)), -1, dtype=self._torch.int32, device=a.device).view(self._torch.float32)
        self._launch(compiled, a, b, c, mask)
        return c

    def _launch(self, compiled: Compiled, a: Any, b: Any, c: Any, mask: int) -> None:
        grid = (len(a) // SIDE, len(b) // SIDE, 1)
        compiled.kernel[grid](a, b, c, len(b), a.shape[1], mask, *compiled.arguments)

    def _tflops(self, compiled: Compiled, a: Any, b: Any) -> float:
        torch = self._torch
        c = self._launched(compiled, a, b, mask(0))
        fastest: float = np.inf
        for _ in range(TIMED_ROUNDS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(TIMED_LAUNCHES):
                self._launch(compiled, a, b, c, mask(0))
            end.record()
            end.synchronize()
            fastest = min(fastest, float(begin.elapsed_time(end)) / TIMED_LAUNCHES / 1e3)
        return float(2e-12 * len(a) * len(b) * a.shape[1] / fastest)

    @contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        """Make this the current GPU; turn errors of CUDA and Triton into DeviceError."""
        try:
            with self._torch.cuda.device(self._arrays.device):
                yield
        except AccprobeError:
            raise
        except Exception as e:  # torch and Triton raise RuntimeError and their own
            raise DeviceError(f"{self._arrays.device} {what}: {' '.join(str(e).split())}") from e

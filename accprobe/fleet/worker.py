"""What runs on a node, in a process that Ray started for one GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import accprobe
from accprobe.errors import AccprobeError
from accprobe.fleet.events import Work


def working(version: str, work: Work, device: str | None, arguments: tuple[Any, ...]) -> Iterator[str]:
    """First the number of the GPU that Ray gave this process, then the work's texts.

    version: of the accprobe that asked. Raises AccprobeError where another one is installed here; what the work raises has the
    GPU's name on its node, as this process sees that GPU alone.
    """
    import ray

    if accprobe.__version__ != version:
        raise AccprobeError(f"accprobe {accprobe.__version__} is installed there, not {version}: install the same everywhere")
    (gpu,) = ray.get_runtime_context().get_accelerator_ids()["GPU"]
    yield gpu
    name = device or f"cuda:{_index(gpu)}"
    try:
        yield from work(name, *arguments)
    except AccprobeError as e:
        raise AccprobeError(str(e).replace(name, device or f"cuda:{gpu}")) from None


def _index(gpu: str) -> int:
    """CUDA's number of a GPU that Ray calls so. Ray narrows what the process sees to it, unless it was told not to."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return seen.index(gpu) if gpu in seen else int(gpu)

"""The health of every GPU of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accprobe.errors import DeviceError
from accprobe.fleet.cluster import Cluster
from accprobe.fleet.driver import FleetEvent, FleetGpu, Task
from accprobe.health.check import check_gpu
from accprobe.health.outcome import ClusterNode, GpuOutcome, OnOutcome
from accprobe.health.plan import CheckPlan


def unopened(gpu: FleetGpu, device: str | None) -> GpuOutcome:
    """Return the outcome of a cluster's GPU before anything is known."""
    name = device or f"GPU {gpu.number + 1} of {gpu.count}"
    return GpuOutcome.unopened(name).model_copy(update={"node": ClusterNode(address=gpu.address, id=gpu.node)})


def check_cluster(
    cluster: Cluster, devices: Sequence[str | None], plan: CheckPlan, patience: float, on_change: OnOutcome
) -> None:
    """Check all GPUs at once. devices: the one that replaces each, or None.

    patience: seconds of silence after which a GPU hangs. on_change: called with each change, and with each unfinished GPU where
    the cluster is lost. A check whose process died is repeated once, unless results had differed before.
    """
    latest = [unopened(gpu, device) for gpu, device in zip(cluster.gpus, devices, strict=True)]
    deaths = [0] * len(latest)

    def retry(gpu: int) -> bool:
        deaths[gpu] += 1
        return deaths[gpu] == 1 and not latest[gpu].wrong

    tasks = [Task(gpu, checking, (plan,), device, plan.seconds, patience) for gpu, device in enumerate(devices)]
    try:
        for event in cluster.run(tasks, retry):
            so_far = latest[event.gpu]
            latest[event.gpu] = _after(so_far, event, deaths[event.gpu], devices[event.gpu])
            if latest[event.gpu] != so_far:
                on_change(event.gpu, latest[event.gpu])
    except DeviceError as e:
        for gpu, so_far in enumerate(latest):
            if not so_far.ended:
                on_change(gpu, so_far.stopped(str(e)))


def checking(device: str, plan: CheckPlan) -> Iterator[str]:
    """Yield the outcomes of `check_gpu` as JSON, which readers of another version can refuse."""
    for so_far in check_gpu(device, plan):
        yield so_far.model_dump_json()


def _after(so_far: GpuOutcome, event: FleetEvent, deaths: int, replacement: str | None) -> GpuOutcome:
    """Return the outcome after an event, under the cluster's name of the GPU: each process sees one GPU, as cuda:0."""
    node, device = so_far.node, so_far.device
    assert node is not None
    match event.what:
        case "began":
            device = replacement or f"cuda:{event.text}"
            return so_far.model_copy(update={"node": node.model_copy(update={"gpu": event.text}), "device": device})
        case "said":
            said = GpuOutcome.model_validate_json(event.text)
            ours = {"device": device, "node": node, "deaths": deaths, "reason": said.reason.replace(said.device, device)}
            return said.model_copy(update=ours if said.kind else ours | {"name": device})
        case "ended":
            return so_far if so_far.ended else so_far.stopped("its process ended before the check did")
        case "died":
            times = f", {deaths} times" if deaths > 1 else ""
            return so_far.stopped(f"{event.text}{times}").model_copy(update={"deaths": deaths})
        case "failed":
            return so_far.stopped(event.text)

"""The health of every GPU of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accprobe.errors import DeviceError
from accprobe.fleet.cluster import Cluster
from accprobe.fleet.events import FleetEvent, FleetGpu, Task
from accprobe.health.check import check_gpu
from accprobe.health.outcome import ClusterNode, GpuOutcome, OnOutcome
from accprobe.health.plan import CheckPlan


def unopened(gpu: FleetGpu, device: str | None) -> GpuOutcome:
    """Of a cluster's GPU of which nothing is known yet."""
    name = device or f"GPU {gpu.number + 1} of {gpu.count}"
    return GpuOutcome.unopened(name).model_copy(update={"node": ClusterNode(address=gpu.address, id=gpu.node)})


def check_cluster(
    cluster: Cluster,
    devices: Sequence[str | None],
    plan: CheckPlan,
    patience: float,
    retries: int,
    told: OnOutcome,
) -> None:
    """Checks all GPUs at once; devices: the one that stands in for each, None: the GPU itself.

    patience: seconds without news after which a GPU hangs. retries: how often one is begun again whose process died, unless
    it had differed before. A cluster that is lost is told of each GPU that had not ended.
    """
    latest = [unopened(gpu, device) for gpu, device in zip(cluster.gpus, devices, strict=True)]
    deaths = [0] * len(latest)

    def begin(gpu: int) -> None:
        cluster.send(Task(gpu, checking, (plan,), devices[gpu], plan.seconds, patience))

    for gpu in range(len(latest)):
        begin(gpu)
    try:
        for news in cluster.news():
            gpu, so_far = news.gpu, latest[news.gpu]
            deaths[gpu] += news.what == "died"
            if news.what == "died" and deaths[gpu] <= retries and not so_far.wrong:
                begin(gpu)
            latest[gpu] = _after(so_far, news, deaths[gpu], devices[gpu])
            if latest[gpu] != so_far:
                told(gpu, latest[gpu])
    except DeviceError as e:
        for gpu, so_far in enumerate(latest):
            if not so_far.ended:
                told(gpu, so_far.stopped(str(e)))


def checking(device: str, plan: CheckPlan) -> Iterator[str]:
    """`check_gpu` in texts, which readers of another version can refuse."""
    for so_far in check_gpu(device, plan):
        yield so_far.model_dump_json()


def _after(so_far: GpuOutcome, news: FleetEvent, deaths: int, stand_in: str | None) -> GpuOutcome:
    node = so_far.node
    assert node is not None
    match news.what:
        case "began":
            device = stand_in or f"cuda:{news.text}"
            return so_far.model_copy(update={"node": node.model_copy(update={"gpu": news.text}), "device": device})
        case "said":
            return _as_ours(GpuOutcome.model_validate_json(news.text), so_far.device, node, deaths)
        case "ended":
            return so_far if so_far.ended else so_far.stopped("its process ended before the check did")
        case "died":
            times = f", {deaths} times" if deaths > 1 else ""
            return so_far.stopped(f"{news.text}{times}").model_copy(update={"deaths": deaths})
        case "failed":
            return so_far.stopped(news.text)


def _as_ours(said: GpuOutcome, device: str, node: ClusterNode, deaths: int) -> GpuOutcome:
    """An outcome of a process that sees one GPU alone, as the cluster's: there every one is cuda:0."""
    ours = {"device": device, "node": node, "deaths": deaths, "reason": said.reason.replace(said.device, device)}
    return said.model_copy(update=ours if said.kind else ours | {"name": device})

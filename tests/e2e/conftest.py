"""One real control plane for every test that only wants to be in one, with the nodes of a small fleet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from paddock.fleet import Stack
from paddock.kube.client import Api
from paddock.lab.control_plane import programs, servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.progress import Progress
from paddock.lab.simulators import nodes
from paddock.lab.simulators.scaling import Group
from tests.support import fleets
from tests.support.kubernetes import gpu_nodes, objects
from tests.support.waiting import until

BOOT_SECONDS = 1.0
IDLE_SECONDS = 2.0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process runs all tests in the shared control plane: a second would cost minutes."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("cluster"))


@pytest.fixture(scope="session")
def control_plane_programs() -> None:
    """Skips where the programs of a control plane are not here."""
    absent = sorted(set(programs.PROGRAMS) - set(programs.locate()))
    if absent:
        pytest.skip(f"the lab's programs are not here: {', '.join(absent)} (on PATH, or in PADDOCK_LAB_BIN)")


@pytest.fixture(scope="session")
def stack() -> Stack:
    """Return the example stack dev, with a fallback from spot."""
    config = yaml.safe_load((fleets.ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8"))["config"]["paddock:fleet"]
    config["pools"]["t4"]["fallback"] = "on-demand"
    return fleets.stack(config, "dev")


@pytest.fixture(scope="session")
def groups(stack: Stack) -> dict[str, Group]:
    return {group.name: group for group in nodes.groups(stack)}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, stack: Stack, control_plane_programs: None) -> Iterator[Lab]:
    """Yield the control plane with the stack's nodes and autoscaler. Its GPU pool is empty between tests."""
    lab, _ = servers.up(tmp_path_factory.mktemp("lab"), progress=Progress(quiet=True))
    try:
        nodes.start(lab, stack, boot_seconds=BOOT_SECONDS, idle_seconds=IDLE_SECONDS)
        yield lab
    finally:
        servers.down(lab.folder)


@pytest.fixture
def api(cluster: Lab) -> Iterator[Api]:
    with Api.of(cluster.kubeconfig) as api:
        yield api


@pytest.fixture
def namespace(api: Api, stack: Stack) -> Iterator[str]:
    """Yield a namespace with all that the fleet's runners have in theirs."""
    from paddock.plan.engine.program import plan_graph

    declared = [item for item in objects(plan_graph(stack)) if "arc-runners" in _places(item)]
    (namespace_object,) = (item for item in declared if item["kind"] == "Namespace")
    namespace_object = api.create(
        {**namespace_object, "metadata": {"generateName": "runners-", "labels": namespace_object["metadata"]["labels"]}}
    )
    name = str(namespace_object["metadata"]["name"])
    for item in declared:
        if item["kind"] in ("ConfigMap", "LimitRange", "ResourceQuota", "ServiceAccount"):
            api.create({**item, "metadata": {**item["metadata"], "namespace": name}})
    until(lambda: api.find("v1", "ServiceAccount", "default", name))
    until(lambda: api.get("v1", "ResourceQuota", "pools", name).get("status", {}).get("used"))
    yield name
    for pod in api.list("v1", "Pod", name):
        api.delete(pod, grace_seconds=0)
    api.delete(namespace_object)
    until(lambda: not gpu_nodes(api), seconds=30)


def _places(item: dict[str, object]) -> set[object]:
    meta = item["metadata"]
    assert isinstance(meta, dict)
    return {meta.get("name"), meta.get("namespace")}

"""One real control plane for every test that only wants to be in one, with the nodes of a small fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.console.progress import Progress
from paddock.fleet import Stack
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab import github, processes
from paddock.lab.control_plane import servers
from paddock.lab.control_plane.certificates import rsa_key
from paddock.lab.control_plane.servers import Lab
from paddock.lab.simulators import arc, nodes, runner_sets
from paddock.lab.simulators.scaling import Group
from paddock.lab.stack.engine import Programs
from tests.support import fleets
from tests.support.engine import need_control_plane, need_engine
from tests.support.github_control import FaultyGitHub
from tests.support.kubernetes import applied, gpu_nodes, objects, runner_set
from tests.support.waiting import until

MakeSet = Callable[..., Object]
CRDS = Path(arc.__file__).parents[1] / "stack/charts/own/gha-runner-scale-set-controller/crds"
BOOT_SECONDS = 1.0
IDLE_SECONDS = 1.0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process runs all tests in a cluster, and one all with jobs in it: they wait more than they work."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "cluster" in names and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("jobs" if "hub" in names else "cluster"))


@pytest.fixture(scope="session")
def control_plane_programs() -> None:
    """Skips where the programs of a control plane are not here."""
    need_control_plane()


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Return the engine's programs; skips where they are not here."""
    return need_engine()


@pytest.fixture(scope="session")
def engine_programs(control_plane_programs: None) -> Programs:
    """Return those of an engine with the provider for Kubernetes, beside the programs of a control plane."""
    return need_engine(kubernetes=True)


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
def idle_after(cluster: Lab, stack: Stack) -> Iterator[Callable[[float], None]]:
    """Change after how many seconds an idle node goes, for a test that looks at one for as long as it takes."""

    def change(seconds: float) -> None:
        nodes.start(cluster, stack, boot_seconds=BOOT_SECONDS, idle_seconds=seconds)

    yield change
    change(IDLE_SECONDS)


@pytest.fixture
def api(cluster: Lab) -> Iterator[Api]:
    with lab_api(cluster.kubeconfig) as api:
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
        api.delete(pod, gracePeriodSeconds="0")
    api.delete(namespace_object)
    until(lambda: not gpu_nodes(api), seconds=30)


@pytest.fixture(scope="module")
def hub(cluster: Lab) -> Iterator[FaultyGitHub]:
    """GitHub, ARC, and what runs in runner pods."""
    with lab_api(cluster.kubeconfig) as api:
        for crd in sorted(CRDS.iterdir()):
            api.apply(yaml.safe_load(crd.read_text(encoding="utf-8")))
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": arc.NAMESPACE}})
    url = github.start(cluster)
    arc.start(cluster, url)
    yield FaultyGitHub(url)
    running = servers.status(cluster.folder).running
    processes.stop([running[name] for name in ("arc", "runners", "github") if name in running])


@pytest.fixture(scope="module")
def key() -> str:
    return rsa_key()


@pytest.fixture
def make_set(hub: FaultyGitHub, api: Api, stack: Stack, namespace: str, key: str) -> Iterator[MakeSet]:
    """Registers the scale set of dev's runner, with changes to its spec; it is gone after the test, as are its jobs."""
    app = {"github_app_id": "12345", "github_app_installation_id": "678", "github_app_private_key": key}
    credential = {"name": "credential", "namespace": namespace}
    api.apply({"apiVersion": "v1", "kind": "Secret", "metadata": credential, "stringData": app})
    created: list[Object] = []

    def make(**changes: Any) -> Object:
        runner_set_ = runner_set(stack.fleet, "gpu")
        runner_set_["metadata"]["namespace"] = namespace
        runner_set_["spec"] |= {"githubConfigUrl": f"{hub.url}/acme", **changes}
        created.append(until(lambda: applied(api, runner_set_)))
        until(lambda: [set_ for set_ in hub.sets() if set_["name"] == runner_set_["spec"]["runnerScaleSetName"]])
        hub.forget_requests()
        return created[-1]

    yield make
    hub.heal()
    for job in hub.jobs():
        hub.cancel(job["id"])
    for object_ in created:
        api.delete(object_)
    until(lambda: not hub.sets())
    until(lambda: not api.list(runner_sets.VERSION, runner_sets.KIND))
    until(lambda: not api.list("v1", "Pod", namespace))


def _places(item: dict[str, object]) -> set[object]:
    meta = item["metadata"]
    assert isinstance(meta, dict)
    return {meta.get("name"), meta.get("namespace")}

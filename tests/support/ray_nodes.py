"""Nodes of a real Ray in this process's hands, each an agent of serving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import need


@contextmanager
def ray_nodes(root: Path, agents: Sequence[str]) -> Iterator[Any]:
    """Yield Ray, connected to a node for each agent."""
    need("ray", "torch")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("RAY_AUTH_MODE", "disabled"), ("RAY_USAGE_STATS_ENABLED", "0"), ("PYTHONPATH", str(root)),
        ):  # fmt: skip
            patch.setenv(name, value)
        import ray
        from ray.cluster_utils import Cluster

        cluster = Cluster()
        for agent in agents:
            cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, resources={f"agent:{agent}": 1000})
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        yield ray
        ray.shutdown()
        cluster.shutdown()


def in_group(ray: Any, actor: type, bundles: Sequence[Any], *arguments: Any) -> Any:
    """Return an actor in the first bundle of a placement group."""
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([dict(bundle) for bundle in bundles])
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    return ray.remote(num_cpus=0)(actor).options(scheduling_strategy=strategy).remote(*arguments)

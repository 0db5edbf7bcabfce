"""A Kubernetes minor without pinned versions is refused in words, before anything is declared."""

from __future__ import annotations

import pytest

from paddock.plan.engine.graph import PlanError
from paddock.plan.engine.program import plan_graph
from tests.support.fleets import fleet_data, stack

OLD = {"version": "1.29", "kubeconfig": "kubeconfig.yaml"}


def test_a_minor_without_pins_is_refused_with_a_custom_image() -> None:
    new = {"version": "1.32", "support": "extended", "endpoint": {"allow": ["203.0.113.0/24"]}}
    image = {"custom": "ami-0123456789abcdef0", "driver": "580.95.05", "kubernetes": "1.32"}
    pools = {"t4": {"instances": ["g4dn.xlarge"], "nodes": {"max": 2}, "ami": image}}
    with pytest.raises(PlanError) as refused:
        plan_graph(stack(fleet_data(cluster=new, pools=pools)))
    assert "no EKS add-ons and no cluster-autoscaler for Kubernetes 1.32" in str(refused.value)
    assert "expected: one of 1.33, 1.34, 1.35, 1.36" in str(refused.value)


def test_a_kubeconfig_cluster_has_no_support_dates_of_eks() -> None:
    assert plan_graph(stack(fleet_data(cluster=OLD))).resources


def test_a_warm_schedule_needs_kubectl_of_the_minor() -> None:
    runners = {"gpu": {"pool": "t4", "warm": [{"at": "0 8 * * 1-5", "min": 1}]}}
    with pytest.raises(PlanError, match=r"no kubectl for Kubernetes 1\.29"):
        plan_graph(stack(fleet_data(cluster=OLD, runners=runners)))

"""Environment of the job hooks in a runner's pod."""

from __future__ import annotations

import pytest

from infra.arc import runner_pod
from tests.support.fleets import named


@pytest.mark.parametrize(
    ("sample", "shared"), [("smallest", None), ("mig", None), ("time-slicing", "timeSlicing"), ("mps", "mps")]
)
def test_the_hooks_get_the_gpu_count_and_sharing(sample: str, shared: str | None) -> None:
    fleet = named(sample).fleet
    for runner in fleet.runners.values():
        (container,) = runner_pod.runner_template(fleet, runner)["spec"]["containers"]
        variables = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert (variables["PADDOCK_GPUS"], variables.get("PADDOCK_GPU_SHARING")) == (str(runner.gpus), shared)


@pytest.mark.parametrize(("sample", "own"), [("smallest", True), ("time-slicing", True), ("mps", False)])
def test_nothing_hides_the_shared_memory_that_mps_works_through(sample: str, own: bool) -> None:
    fleet = named(sample).fleet
    for runner in fleet.runners.values():
        spec = runner_pod.runner_template(fleet, runner)["spec"]
        mounts = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
        assert ("/dev/shm" in mounts, "shm" in {volume["name"] for volume in spec["volumes"]}) == (own, own)

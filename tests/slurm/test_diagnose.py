"""First broken link of a node, for every row of the table of troubles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paddock.slurm.detect.machine import Detection, detect
from paddock.slurm.diagnose.chain import chain
from paddock.slurm.diagnose.node_state import Container, NodeState, SlurmNode
from paddock.slurm.validate.link import Link, broken
from paddock.slurm.write.slurm_files import Node, slurm_files
from tests.support.boxes import box, gpu
from tests.support.gpu_machines import NO_GPU

FOUR = detect(box([gpu(index, minor=index) for index in range(4)]), None)
NONE = detect(NO_GPU, None)
DRIVER = Link("driver", "ok", "NVIDIA 580.95.05, 4 GPUs answer")


def node(detection: Detection = FOUR, **changes: Any) -> NodeState:
    """Return a node without a fault."""
    contained = detection.contained
    files = slurm_files(contained, Node(name="paddock-slurm", hardware="CPUs=8 RealMemory=64000"))
    count = len(contained.gpus)
    good = NodeState(
        name="paddock-slurm", image="paddock/slurm:nvidia", image_type=detection.gpu_type,
        container=Container(running=True, state="running", gpus=bool(count), image_type=detection.gpu_type),
        inventory=contained, files={file.path: file.text for file in files.files},
        nodes=(SlurmNode("paddock-slurm", "idle", f"gpu:h100:{count}(S:0)" if count else "(null)", "none"),),
    )  # fmt: skip
    return replace(good, **changes)


def state(**changes: Any) -> Container:
    return replace(node().container, **changes)  # type: ignore[type-var, return-value]  # it has one


def first(state: NodeState, detection: Detection = FOUR, host: tuple[Link, ...] = (DRIVER,)) -> Link | None:
    return broken(chain(detection, host, state, "paddock"))


@pytest.mark.parametrize("detection", [FOUR, NONE])
def test_a_good_node_has_no_broken_link(detection: Detection) -> None:
    links = list(chain(detection, (), node(detection), "paddock"))
    assert [link.name for link in links] == ["gpu", "image", "container", "files", "slurm"]
    assert broken(links) is None


def test_no_gpu_detected_says_the_reason() -> None:
    reason = "The NVIDIA driver is installed, but its kernel module is not loaded: `modprobe nvidia`."
    detection = detect(replace(NO_GPU, reason=reason), None)
    link = broken(chain(detection, (), node(NONE), "paddock", hardware=True))
    assert (link.name, link.evidence) == ("gpu", reason)


def test_passthrough_that_failed_is_the_hosts_link() -> None:
    toolkit = Link("toolkit", "broken", "nvidia-container-toolkit is absent", "install it")
    assert first(node(container=None), host=(DRIVER, toolkit)) == toolkit


@pytest.mark.parametrize(
    ("changes", "name", "evidence", "fix"),
    [
        ({"image_type": None, "container": None}, "image", "no image paddock/slurm:nvidia", "slurm.configure"),
        ({"container": state(image_type="none")}, "image", "built for GPU_TYPE=none", "--rebuild"),
        ({"container": None}, "container", "there is no container", "up --detach"),
        (
            {"container": state(running=False, state="exited with 1", last_lines=("munge failed",))},
            "container", "exited with 1: munge failed", "docker logs",
        ),
        ({"container": state(gpus=False)}, "compose", "started without GPUs", "--force-recreate"),
        ({"inventory": None}, "container", "does not list its GPUs", "--force-recreate"),
        (
            {"inventory": replace(FOUR.contained, gpus=(), reason="this container has lost its GPUs")},
            "container", "lists 0 of 4 GPUs: this container has lost its GPUs", "--force-recreate",
        ),
        ({"nodes": None, "slurm_error": "slurm_load_partitions: Unable to contact slurm controller"}, "slurm",
         "Unable to contact slurm controller", "docker logs"),
        (
            {"nodes": (SlurmNode("n", "inval", "gpu:h100:4", "gres/gpu count reported lower (0 < 4)"),)},
            "slurm", "inval: gres/gpu count reported lower", "docker restart",
        ),
        ({"nodes": (SlurmNode("n", "drained*", "gpu:h100:4", "bad fan"),)}, "slurm", "bad fan", "state=resume"),
        ({"nodes": (SlurmNode("n", "idle", "(null)", "none"),)}, "slurm", "offers 0 of 4 GPUs", "docker restart"),
    ],
)  # fmt: skip
def test_the_first_broken_link_has_evidence_and_a_fix(
    changes: dict[str, Any], name: str, evidence: str, fix: str
) -> None:
    link = first(node(**changes))
    assert link.name == name
    assert evidence in link.evidence
    assert fix in link.fix


def test_invalid_gres_of_two_files_that_disagree_is_explained() -> None:
    good = node()
    files = dict(good.files or {})
    doubled = {**files, "gres.conf": files["gres.conf"] + files["gres.conf"].splitlines()[1] + "\n"}
    assert "a line twice" in first(replace(good, files=doubled)).evidence  # type: ignore[union-attr]  # it is broken
    other = {**files, "slurm.conf": files["slurm.conf"].replace("gpu:h100:4", "gpu:h100:8")}
    assert "names 8 GPUs, and the container has 4" in first(replace(good, files=other)).evidence  # type: ignore[union-attr]  # it is broken
    own = {**other, "slurm.conf": other["slurm.conf"] + "# USER_CUSTOMIZED=true\n"}
    assert "customised" in first(replace(good, files=own)).fix  # type: ignore[union-attr]  # it is broken

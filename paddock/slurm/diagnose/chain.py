"""Links from the machine's GPU to a Slurm node that hands it out, in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from paddock.errors import one_line, program
from paddock.gpu.model import Inventory
from paddock.gpu.render.rendered import customised
from paddock.slurm.detect.machine import Detection
from paddock.slurm.diagnose.node_state import NodeState, SlurmNode
from paddock.slurm.programs.nodes import gpu_count, node_gres
from paddock.slurm.validate.link import Link

_WORKING = ("idle", "mixed", "allocated", "completing", "reserved", "planned")


def chain(
    detection: Detection, host: tuple[Link, ...], node: NodeState, prefix: str, *, hardware: bool = False
) -> Iterator[Link]:
    """Yield every link that could be read. `host` are the links of the machine itself.

    `hardware`: the machine has a GPU or its driver, also where none can be used.
    """
    again = f"{program()} slurm.configure{'' if prefix == 'paddock' else f' --prefix {prefix}'}"
    recreate = f"{again}, then docker compose --file {node.name}/compose.yaml up --detach --force-recreate"
    yield _gpu(detection, hardware)
    yield from host
    yield _image(detection, node, again)
    if node.container is None:
        yield Link("container", "broken", f"there is no container {node.name}", recreate)
        return
    if not node.container.running:
        last = f": {one_line(node.container.last_lines[-1])}" if node.container.last_lines else ""
        yield Link("container", "broken", f"{node.name} {node.container.state}{last}", f"docker logs {node.name}")
        return
    expected = len(detection.contained.gpus)
    yield _passed(detection, node, expected, recreate)
    yield _files(node)
    yield _node(node, expected)


def _gpu(detection: Detection, hardware: bool) -> Link:
    inventory = detection.inventory
    if detection.gpu_type != "none":
        return Link("gpu", "ok", f"{len(inventory.usable)} {detection.gpu_type} GPUs answer on {detection.platform}")
    if detection.support and not detection.support.possible:
        return Link("gpu", "warning", detection.support.needs)
    reason = inventory.reason or "the inventory has no GPU that works"
    if not hardware:
        return Link("gpu", "warning", f"no GPUs, so Slurm runs without: {reason}")
    return Link("gpu", "broken", reason, "see the reason; `nvidia-smi` or `rocm-smi` must list the GPU first")


def _image(detection: Detection, node: NodeState, again: str) -> Link:
    built_for = node.container.image_type if node.container else node.image_type
    if built_for is None:
        return Link("image", "broken", f"the engine has no image {node.image}", again)
    if not built_for:
        return Link("image", "unknown", f"{node.image} does not say which GPUs it was built for")
    if detection.gpu_type not in ("none", built_for):
        evidence = f"the container's image was built for GPU_TYPE={built_for}, and the machine has {detection.gpu_type}"
        fix = f"{again} --rebuild, then docker compose --file {node.name}/compose.yaml up --detach --force-recreate"
        return Link("image", "broken", evidence, fix)
    return Link("image", "ok", f"built for GPU_TYPE={built_for}")


def _passed(detection: Detection, node: NodeState, expected: int, recreate: str) -> Link:
    assert node.container is not None  # noqa: S101 - the caller has looked
    if expected and not node.container.gpus:
        return Link("compose", "broken", f"{node.name} was started without GPUs", recreate)
    if node.inventory is None:
        return Link("container", "broken", "it does not list its GPUs: paddock gpu.list failed in it", recreate)
    listed = len(node.inventory.usable)
    if listed < expected:
        why = f": {node.inventory.reason}" if node.inventory.reason else ""
        return Link("container", "broken", f"it lists {listed} of {expected} GPUs{why}", recreate)
    return Link("container", "ok", f"{node.name} runs and lists {listed} GPUs")


def _files(node: NodeState) -> Link:
    files = node.files or {}
    slurm, gres = files.get("slurm.conf", ""), files.get("gres.conf", "")
    if not slurm:
        return Link("files", "broken", "/etc/slurm/slurm.conf cannot be read", f"docker logs {node.name}")
    lines = [line.strip() for line in gres.splitlines() if line.strip() and not line.startswith("#")]
    own = "; it is customised, so fix it in the folder of configure" if customised(gres) or customised(slurm) else ""
    if twice := [line for line, count in Counter(lines).items() if count > 1]:
        return Link("files", "broken", f"gres.conf has a line twice: {twice[0]}", f"docker restart {node.name}{own}")
    named = gpu_count(node_gres(slurm))
    listed = len(node.inventory.usable) if isinstance(node.inventory, Inventory) else named
    if named != listed:
        evidence = f"slurm.conf names {named} GPUs, and the container has {listed}"
        fix = f"docker restart {node.name}, which detects again{own}"
        return Link("files", "broken", evidence, fix)
    return Link("files", "ok", f"slurm.conf names {named} GPUs, as the container has")


def _node(node: NodeState, expected: int) -> Link:
    if node.nodes is None:
        return Link("slurm", "broken", one_line(node.slurm_error or "sinfo failed"), f"docker logs {node.name}")
    if not node.nodes:
        return Link("slurm", "broken", "Slurm has no node", f"docker logs {node.name}")
    bad = [row for row in node.nodes if not row.state.rstrip("*+~#$@^-!%").startswith(_WORKING)]
    if bad:
        return Link("slurm", "broken", f"{bad[0].name} is {bad[0].state}: {bad[0].reason}", _mended(node.name, bad[0]))
    offered = sum(gpu_count(row.gres) for row in node.nodes)
    if offered < expected:
        return Link("slurm", "broken", f"Slurm offers {offered} of {expected} GPUs", f"docker restart {node.name}")
    return Link("slurm", "ok", f"{node.nodes[0].name} is {node.nodes[0].state}, with {offered} GPUs")


def _mended(container: str, row: SlurmNode) -> str:
    if "drain" in row.state and "gres" not in row.reason.lower():
        return f"docker exec {container} scontrol update nodename={row.name} state=resume, once the reason is gone"
    return f"docker restart {container}, which detects the GPUs again and resumes the node"

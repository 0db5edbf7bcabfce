"""All files of a node's folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.errors import GpuError
from paddock.gpu.render.rendered import File
from paddock.slurm.detect.machine import Detection
from paddock.slurm.errors import SlurmError, SlurmInputError
from paddock.slurm.programs.names import container_name
from paddock.slurm.programs.nodes import node_gres
from paddock.slurm.write.compose import compose_file
from paddock.slurm.write.replacement import inventory_file
from paddock.slurm.write.slurm_files import Cluster, Node, slurm_files


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Generated files and what to know about them."""

    files: tuple[File, ...]
    gres: str = ""
    """Value of `Gres=` in slurm.conf; empty without GPUs."""
    warnings: tuple[str, ...] = ()


def node_files(detection: Detection, prefix: str, image: str, folder: Path, *, shards: int = 0) -> NodeFiles:
    """Return Slurm's files for the container, the Compose file and the inventory. Raises SlurmError.

    The container writes Slurm's files again at each start for the GPUs that it sees then. These show what it will write
    on this machine, and one of them with `# USER_CUSTOMIZED=true` is what it uses.
    """
    name = container_name(prefix)
    contained = detection.contained
    passed = contained.gpus and detection.inventory
    try:
        rendered = slurm_files(contained, Node(name=name, hardware=detection.hardware), Cluster(shards=shards))
        compose = compose_file(passed or contained, prefix, image, shards=shards)
    except GpuError as error:
        raise (SlurmInputError if error.exit_code == SlurmInputError.exit_code else SlurmError)(str(error)) from None
    files = (*rendered.files, compose, inventory_file(detection.inventory, folder))
    return NodeFiles(files, node_gres(rendered.text("slurm.conf")), rendered.warnings)

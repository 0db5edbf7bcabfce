"""Flags of `configure`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.parameter import JSON, Flag, Parameters, parameter


@dataclass(frozen=True, kw_only=True)
class Configure(Parameters):
    """Flags of `configure`."""

    dry_run: bool = parameter(False, "show what would be written, and change nothing")
    rebuild: bool = parameter(False, "build the image again, without its cache")
    inventory: Path | None = parameter(
        None, "", flag=Flag("from", None, None, "a saved inventory (gpu.list --json) instead of this machine's GPUs",
                            metavar="PATH")
    )  # fmt: skip
    prefix: str = parameter("paddock", "name of the Compose project; the container is PREFIX-slurm")
    output: Path | None = parameter(None, "folder of the files, by default PREFIX-slurm")
    shards: int = parameter(0, "jobs that may share a GPU (--gres=shard:1), 0 for none", ge=0)
    gpu_type: str = parameter("", "none: configure without GPUs, although the machine has some")
    image: str = parameter("", "use this image of Slurm, and build none")
    base: str = parameter("", "build the image on this one of the Debian family, instead of the default for the GPUs")
    files_only: bool = parameter(False, "write the files, and neither ask Docker nor build")
    diagnose: bool = parameter(False, "walk from the driver to a job's GPU, and name the first broken link")
    json: str | None = parameter(None, JSON.help, flag=JSON)

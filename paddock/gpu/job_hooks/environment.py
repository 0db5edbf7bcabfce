"""What a hook knows of its job, from the environment that the runner and the pod give it."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SHARED = frozenset({"timeSlicing", "mps"})


@dataclass(frozen=True, slots=True)
class Job:
    """`gpus` is how many the pod was given; `given` are their UUIDs, or those of its MIG parts, where it was told."""

    gpus: int
    given: frozenset[str]
    sharing: str | None
    """How other pods use the same GPUs at the same time."""
    where: str
    folder: Path
    """For what one hook leaves the other; it need not be there yet."""
    temp: Path | None
    """The runner's own folder for temporary files."""
    summary: Path | None
    """What is appended here stands on the page of the workflow's run."""
    tracking: str | None
    """The mark by which the runner knows the processes of this job."""

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Job:
        gpus, node = environ.get("PADDOCK_GPUS", ""), environ.get("NODE_NAME")
        temp, summary = environ.get("RUNNER_TEMP"), environ.get("GITHUB_STEP_SUMMARY")
        told = environ.get("PADDOCK_GPU_SHARING")
        visible = environ.get("NVIDIA_VISIBLE_DEVICES", "")
        name = f"paddock-job-{os.getuid()}-{environ.get('GITHUB_RUN_ID', '0')}"
        return cls(
            gpus=int(gpus) if gpus.isdecimal() else 0,
            given=frozenset(one for one in visible.split(",") if one.startswith(("GPU-", "MIG-"))),
            # The device plugin tells a pod of MPS by itself.
            sharing="mps" if "CUDA_MPS_PIPE_DIRECTORY" in environ else told if told in _SHARED else None,
            where=f"node {node}" if node else f"runner {socket.gethostname()}",
            folder=Path(temp) / "_paddock" if temp else Path(tempfile.gettempdir()) / name,
            temp=Path(temp) if temp else None,
            summary=Path(summary) if summary else None,
            tracking=environ.get("RUNNER_TRACKING_ID"),
        )

    @property
    def shared(self) -> bool:
        return self.sharing is not None

    def own_folder(self) -> Path:
        """Makes it, for this user alone. Raises OSError, also where somebody else has made it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = self.folder.lstat()
        if about.st_uid != os.getuid() or self.folder.is_symlink():
            raise PermissionError(f"{self.folder} belongs to somebody else")
        return self.folder

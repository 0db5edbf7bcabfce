"""The job of a hook, as the environment of runner and pod describes it."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SHARED = frozenset({"timeSlicing", "mps"})


@dataclass(frozen=True, slots=True)
class PodJob:
    """Job of this pod: `gpus` is the number of its GPUs; `assigned` are their UUIDs or those of MIG parts, if known."""

    gpus: int
    assigned: frozenset[str]
    sharing: str | None
    """How other pods share the same GPUs: `timeSlicing`, `mps` or None."""
    where: str
    folder: Path
    """For data that one hook leaves for the other; it may not exist yet."""
    temp: Path | None
    """The runner's own folder for temporary files."""
    summary: Path | None
    """Text appended here appears on the page of the workflow run."""
    tracking: str | None
    """Value of the variable by which the runner recognises this job's processes."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> PodJob:
        gpus, node = environ.get("PADDOCK_GPUS", ""), environ.get("NODE_NAME")
        temp, summary = environ.get("RUNNER_TEMP"), environ.get("GITHUB_STEP_SUMMARY")
        sharing = environ.get("PADDOCK_GPU_SHARING")
        visible = environ.get("NVIDIA_VISIBLE_DEVICES", "")
        name = f"paddock-job-{os.getuid()}-{environ.get('GITHUB_RUN_ID', '0')}"
        return cls(
            gpus=int(gpus) if gpus.isdecimal() else 0,
            assigned=frozenset(uuid for uuid in visible.split(",") if uuid.startswith(("GPU-", "MIG-"))),
            # The device plugin sets this variable for MPS.
            sharing="mps" if "CUDA_MPS_PIPE_DIRECTORY" in environ else sharing if sharing in _SHARED else None,
            where=f"node {node}" if node else f"runner {socket.gethostname()}",
            folder=Path(temp) / "_paddock" if temp else Path(tempfile.gettempdir()) / name,
            temp=Path(temp) if temp else None,
            summary=Path(summary) if summary else None,
            tracking=environ.get("RUNNER_TRACKING_ID"),
        )

    @property
    def shared(self) -> bool:
        return self.sharing is not None

    def create_folder(self) -> Path:
        """Create the folder, for this user only. Raises OSError, also where another user owns it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self.folder.lstat()
        if status.st_uid != os.getuid() or self.folder.is_symlink():
            raise PermissionError(f"{self.folder} belongs to another user")
        return self.folder

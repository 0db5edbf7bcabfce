"""Folders of a node, and the users that its daemons run as."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paddock.slurm.errors import SlurmError, SlurmInputError
from paddock.slurm.write.compose import CONFIGURATION, LOGS, STATE

Role = Literal["all", "controller", "node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Folders and files. `source` is the host's folder of `configure`, read-only."""

    etc: Path = Path("/etc/slurm")
    source: Path = Path(CONFIGURATION)
    state: Path = Path(STATE)
    spool: Path = Path("/var/spool/slurmd")
    logs: Path = Path(LOGS)
    run: Path = Path("/run/slurm")
    munge_etc: Path = Path("/etc/munge")
    munge_state: Path = Path("/var/lib/munge")
    munge_logs: Path = Path("/var/log/munge")
    munge_run: Path = Path("/run/munge")

    def spool_of(self, users: Users) -> Path:
        """Return the daemon's folder, which must be its own: a user who is not root cannot take over the image's."""
        return self.spool if users.root else self.spool / users.daemon.pw_name

    @property
    def key(self) -> Path:
        return self.munge_etc / "munge.key"

    @property
    def socket(self) -> Path:
        return self.munge_run / "munge.socket.2"

    @property
    def slurm_conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def node(self) -> Path:
        """File with name and role of the node that runs, for the health check."""
        return self.run / "node.json"


LAYOUT = Layout()
"""Layout of the image."""


User = pwd.struct_passwd
"""User of a daemon."""


@dataclass(frozen=True, slots=True)
class Users:
    """Users of the daemons: munge, slurm and root where the container has root, else its one user."""

    munge: User
    slurm: User
    daemon: User

    @property
    def root(self) -> bool:
        return self.daemon.pw_uid == 0


def users(uid: int | None = None) -> Users:
    """Return the daemons' users. Raises SlurmError for a user without a name, which Slurm refuses."""
    own = os.geteuid() if uid is None else uid
    if own == 0:
        return Users(_named("munge"), _named("slurm"), pwd.getpwuid(0))
    try:
        user = pwd.getpwuid(own)
    except KeyError:
        raise SlurmInputError(
            f"the user {own} has no name in this container\n    expected: a user in /etc/passwd, as Slurm asks for one"
            "\n    fix: docker run --user 1000, or mount an /etc/passwd that names this user"
        ) from None
    return Users(user, user, user)


def prepare(layout: Layout, users: Users, role: Role) -> None:
    """Create the folders for their users. Raises SlurmError for one that cannot be written."""
    folders = [
        *((folder, users.munge, 0o755) for folder in (layout.munge_etc, layout.munge_run)),
        *((folder, users.munge, 0o700) for folder in (layout.munge_state, layout.munge_logs)),
        *((folder, users.slurm, 0o755) for folder in (layout.etc, layout.logs, layout.run)),
        *([(layout.state, users.slurm, 0o755)] if role != "node" else []),
        *([(layout.spool_of(users), users.daemon, 0o755)] if role != "controller" else []),
    ]
    for folder, user, mode in folders:
        _folder(folder, user, mode, root=users.root)


def _folder(folder: Path, user: User, mode: int, *, root: bool) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if root:
            stat = folder.stat()
            if (stat.st_uid, stat.st_gid) != (user.pw_uid, user.pw_gid):
                _take_over(folder, user)
            if stat.st_mode & 0o777 != mode:
                folder.chmod(mode)
        trial = folder / ".paddock-trial"
        trial.write_bytes(b"x")
        trial.unlink()
    except OSError as error:
        raise SlurmError(
            f"cannot write {folder}: {error.strerror}\n    expected: a folder that {user.pw_name} may write"
            f"\n    fix: {_fix(folder, user)}"
        ) from None


def _take_over(folder: Path, user: User) -> None:
    """Give a folder with its files to a user: a container of another user may have written them."""
    os.chown(folder, user.pw_uid, user.pw_gid)
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            os.chown(os.path.join(parent, name), user.pw_uid, user.pw_gid, follow_symlinks=False)


def _fix(folder: Path, user: User) -> str:
    if str(folder).startswith("/etc/slurm"):
        return f"mount your files at {CONFIGURATION}, not there; with --read-only add --tmpfs {folder}"
    return f"mount a volume there, or chown {user.pw_uid}:{user.pw_gid} the folder that is mounted"


def _named(name: str) -> User:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise SlurmError(
            f"this machine has no user {name}\n    expected: the image of Slurm, or Slurm and munge installed"
        ) from None

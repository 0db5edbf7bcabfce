"""Munge: the cluster's key, and the daemon that signs with it."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import time
from pathlib import Path

from paddock import files
from paddock.slurm.errors import SlurmError
from paddock.slurm.start.layout import Layout, Role, User, Users

_KEY_BYTES, _LEAST_BYTES = 128, 32


def prepare_key(layout: Layout, users: Users, role: Role, secret: Path | None, wait_s: float = 60.0) -> str:
    """Have the key in its place, for munge alone, and say where it comes from. Raises SlurmError.

    A controller creates it at the first start. A node needs the controller's, and waits for it in a shared volume.
    """
    key = layout.key
    if secret is not None:
        _install(key, _readable(secret), users.munge, root=users.root)
        return f"key of {secret}"
    if role == "node":
        deadline = time.monotonic() + wait_s
        while not key.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        if not key.exists():
            raise SlurmError(
                f"there is no munge key at {key} after {wait_s:g} s\n    expected: the controller's key"
                "\n    fix: mount the volume that the controller has at /etc/munge, or --munge-key with a secret"
            )
    if key.exists():
        _check(key, users.munge, root=users.root)
        return "key of the volume"
    _install(key, os.urandom(_KEY_BYTES), users.munge, root=users.root)
    return "new key"


def command(layout: Layout) -> list[str]:
    """Return the command of munged in the foreground."""
    return [
        *("munged", "--foreground", f"--key-file={layout.key}", f"--socket={layout.socket}"),
        *(f"--pid-file={layout.munge_run}/munged.pid", f"--seed-file={layout.munge_state}/munge.seed"),
        *(f"--log-file={layout.munge_logs}/munged.log", "--trusted-group=0", "--num-threads=4"),
    ]


def answers(layout: Layout) -> bool:
    """Return True where munged signs, and accepts its own signature."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        signed = _call(["munge", "--no-input", f"--socket={layout.socket}"], b"")
        return signed.returncode == 0 and _call(["unmunge", f"--socket={layout.socket}"], signed.stdout).returncode == 0
    return False


def _call(command: list[str], text: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=text, capture_output=True, timeout=10, check=False)


def _check(key: Path, user: User, *, root: bool) -> None:
    """Hold an existing key to munge's rules. Raises SlurmError."""
    _readable(key)
    about = key.stat()
    private = stat.S_IMODE(about.st_mode) in (0o400, 0o600)
    if private and about.st_uid == user.pw_uid:
        return
    if not root:
        raise SlurmError(
            f"{key} belongs to the user {about.st_uid}, with mode {stat.S_IMODE(about.st_mode):04o}"
            f"\n    expected: {user.pw_name} ({user.pw_uid}), 0400"
            "\n    fix: another volume for a container of another user"
        )
    os.chown(key, user.pw_uid, user.pw_gid)
    key.chmod(0o400)


def _readable(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SlurmError(
            f"cannot read the munge key {path}: {error.strerror}\n    expected: a file of {_LEAST_BYTES} bytes or more"
            "\n    fix: mount it for the user that the container runs as"
        ) from None
    if len(content) < _LEAST_BYTES:
        raise SlurmError(
            f"the munge key {path} has {len(content)} bytes\n    expected: {_LEAST_BYTES} or more"
            "\n    fix: head -c 128 /dev/urandom writes one"
        )
    return content


def _install(key: Path, content: bytes, user: User, *, root: bool) -> None:
    if key.exists() and key.read_bytes() == content:
        _check(key, user, root=root)
        return
    try:
        files.write(key, content, 0o400)
        if root:
            os.chown(key, user.pw_uid, user.pw_gid)
    except OSError as error:
        raise SlurmError(
            f"cannot write the munge key {key}: {error.strerror}\n    fix: a volume at {key.parent} keeps it"
        ) from None

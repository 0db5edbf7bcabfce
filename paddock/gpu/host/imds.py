"""EC2 instance metadata. Read only on request, or where the firmware names EC2: elsewhere nothing answers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from paddock.gpu.errors import GpuError

_HOST = "169.254.169.254"
_SECONDS = 2
_SECONDS_UNASKED = 0.5
"""It answers in milliseconds; a container one network hop too far waits in vain."""
_FIRMWARE = ("sys_vendor", "bios_version")
"""Files that name Amazon: the first on Nitro, the second on the Xen of P3 (`4.11.amazon`)."""


def instance_type(host: str = _HOST, seconds: float = _SECONDS) -> str:
    """Return the type, `g5.xlarge`. Raises GpuError outside EC2, and in a container one network hop too far."""
    from http.client import HTTPException

    try:
        token = _answer(host, seconds, "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        name = _answer(host, seconds, "GET", "/latest/meta-data/instance-type", {"X-aws-ec2-metadata-token": token})
        if not re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", name):
            raise ValueError(f"{name[:40]!r} is no instance type")
    except (OSError, HTTPException, ValueError) as error:
        raise GpuError(
            f"the EC2 instance metadata does not answer: {error}\n    expected: an EC2 instance whose metadata this"
            " process may reach\n    fix: give the expected number of GPUs, --expect N"
        ) from None
    return name


def own_instance_type(
    environ: Mapping[str, str] = os.environ, root: Path = Path("/"), ask: Callable[[], str] | None = None
) -> str | None:
    """Return this machine's type; None outside EC2, and where the metadata does not answer.

    PADDOCK_INSTANCE_TYPE goes before both: a container cannot always reach the metadata.
    """
    if named := environ.get("PADDOCK_INSTANCE_TYPE"):
        return named
    if not any("amazon" in _firmware(root, name) for name in _FIRMWARE):
        return None
    try:
        return ask() if ask else instance_type(seconds=_SECONDS_UNASKED)
    except GpuError:
        return None


def _firmware(root: Path, name: str) -> str:
    try:
        return (root / "sys/class/dmi/id" / name).read_text(errors="replace").lower()
    except OSError:
        return ""


def _answer(host: str, seconds: float, method: str, path: str, headers: dict[str, str]) -> str:
    """Send the request with http.client, which uses no proxies."""
    from http.client import HTTPConnection

    connection = HTTPConnection(host, timeout=seconds)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        if reply.status != 200:
            raise ValueError(f"{reply.status} {reply.reason}")
        return reply.read(256).decode("ascii")
    finally:
        connection.close()

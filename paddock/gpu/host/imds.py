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
    return _metadata("instance-type", r"[a-z0-9-]+\.[a-z0-9-]+", host, seconds)


def machine_image(host: str = _HOST, seconds: float = _SECONDS) -> str:
    """Return the machine image that the instance was started from, `ami-0123456789abcdef0`. Raises GpuError."""
    return _metadata("ami-id", r"ami-[0-9a-f]+", host, seconds)


def own_instance_type(
    environ: Mapping[str, str] = os.environ, root: Path = Path("/"), ask: Callable[[], str] | None = None
) -> str | None:
    """Return this machine's type; None outside EC2, and where the metadata does not answer.

    PADDOCK_INSTANCE_TYPE goes before both: a container cannot always reach the metadata.
    """
    return environ.get("PADDOCK_INSTANCE_TYPE") or _own(root, ask or (lambda: instance_type(seconds=_SECONDS_UNASKED)))


def own_machine_image(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> str | None:
    """Return the machine image that this machine was started from, or what PADDOCK_AMI says; None likewise."""
    return environ.get("PADDOCK_AMI") or _own(root, lambda: machine_image(seconds=_SECONDS_UNASKED))


def _own(root: Path, ask: Callable[[], str]) -> str | None:
    if not any("amazon" in _firmware(root, name) for name in _FIRMWARE):
        return None
    try:
        return ask()
    except GpuError:
        return None


def _metadata(name: str, form: str, host: str, seconds: float) -> str:
    from http.client import HTTPException

    try:
        token = _answer(host, seconds, "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        value = _answer(host, seconds, "GET", f"/latest/meta-data/{name}", {"X-aws-ec2-metadata-token": token})
        if not re.fullmatch(form, value):
            raise ValueError(f"{value[:40]!r} is not a valid {name.replace('-', ' ')}")
    except (OSError, HTTPException, ValueError) as error:
        raise GpuError(
            f"the EC2 instance metadata does not answer: {error}\n    expected: an EC2 instance whose metadata this"
            " process may reach\n    fix: give the expected number of GPUs, --expect N"
        ) from None
    return value


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

"""EC2 instance metadata. Read only on request: outside EC2 the address does not answer."""

from __future__ import annotations

import re

from paddock.gpu.errors import GpuError

_HOST = "169.254.169.254"
_SECONDS = 2


def instance_type(host: str = _HOST) -> str:
    """Return the type, `g5.xlarge`. Raises GpuError outside EC2, and in a container one network hop too far."""
    from http.client import HTTPException

    try:
        token = _answer(host, "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        name = _answer(host, "GET", "/latest/meta-data/instance-type", {"X-aws-ec2-metadata-token": token})
        if not re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", name):
            raise ValueError(f"{name[:40]!r} is no instance type")
    except (OSError, HTTPException, ValueError) as error:
        raise GpuError(
            f"the EC2 instance metadata does not answer: {error}\n    expected: an EC2 instance whose metadata this"
            " process may reach\n    fix: give the expected number of GPUs, --expect N"
        ) from None
    return name


def _answer(host: str, method: str, path: str, headers: dict[str, str]) -> str:
    """Send the request with http.client, which uses no proxies."""
    from http.client import HTTPConnection

    connection = HTTPConnection(host, timeout=_SECONDS)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        if reply.status != 200:
            raise ValueError(f"{reply.status} {reply.reason}")
        return reply.read(256).decode("ascii")
    finally:
        connection.close()

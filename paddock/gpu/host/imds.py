"""What EC2 tells an instance of itself. Asked only where somebody says so: elsewhere the address answers nothing."""

from __future__ import annotations

import re

from paddock.gpu.errors import GpuError

_HOST = "169.254.169.254"
_SECONDS = 2


def instance_type(host: str = _HOST) -> str:
    """`g5.xlarge`. Raises GpuError outside EC2, and in a container that may not ask (one hop too many)."""
    from http.client import HTTPException

    try:
        token = _answer(host, "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        found = _answer(host, "GET", "/latest/meta-data/instance-type", {"X-aws-ec2-metadata-token": token})
        if not re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", found):
            raise ValueError(f"{found[:40]!r} is no instance type")
    except (OSError, HTTPException, ValueError) as error:
        raise GpuError(
            f"the EC2 instance metadata does not answer: {error}\n    expected: an EC2 instance whose metadata this"
            " process may reach\n    fix: say how many GPUs there should be, --expect N"
        ) from None
    return found


def _answer(host: str, method: str, path: str, headers: dict[str, str]) -> str:
    """By http.client, which knows no proxies."""
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

"""The public address of this machine, which only a service outside its network can tell."""

from __future__ import annotations

import urllib.error
import urllib.request
from ipaddress import AddressValueError, IPv4Address

from paddock.errors import PaddockError, one_line

SERVICE = "https://checkip.amazonaws.com"
_PATIENCE = 5.0
"""Seconds."""


class AddressUnknown(PaddockError):
    """The address of this machine is not known."""

    exit_code = 2


def public_network() -> str:
    """Ask the service, through the proxy where one is set, and return the address as a network. Raises AddressUnknown.

    The answer is the address of a whole office or provider where they share one.
    """
    answer = ""
    try:
        with urllib.request.urlopen(SERVICE, timeout=_PATIENCE) as response:
            answer = response.read(200).decode("ascii", "replace").strip()
        return f"{IPv4Address(answer)}/32"
    except AddressValueError:
        reason = f'it answered "{one_line(answer)}", which is not an IPv4 address'
    except (urllib.error.URLError, OSError) as error:
        reason = one_line(str(getattr(error, "reason", error)))
    raise AddressUnknown(
        f"the address of this machine is not known: {SERVICE} was asked, and {reason}\n"
        "    expected: the networks that may reach the Kubernetes API, such as 203.0.113.7/32\n"
        "    fix: --allow with the address that your network shows to the internet, and /32"
    )

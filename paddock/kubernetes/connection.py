"""Connections to a Kubernetes API server: proxies, TLS names, timeouts."""

from __future__ import annotations

import base64
import http.client
import ipaddress
import ssl
import urllib.request
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Route:
    """Way to a server, besides its address."""

    proxy: str = ""
    """Address of an HTTP proxy, `http://host:port`; empty for none."""
    server_name: str = ""
    """Name that the server's certificate must have, where that is not the address's host."""

    def __repr__(self) -> str:
        return f"Route(server_name={self.server_name!r})"  # a proxy's address may hold a password


DIRECT = Route()


def connection(server: str, trust: ssl.SSLContext, timeout: float, route: Route = DIRECT) -> http.client.HTTPConnection:
    """Return a connection that is not open yet. Raises ValueError for a proxy that is not an HTTP proxy.

    Plain HTTP, as `kubectl proxy` serves it on this machine, takes no proxy.
    """
    where = urlsplit(server)
    if where.scheme == "http":
        return http.client.HTTPConnection(where.hostname or "", where.port or 80, timeout=timeout)
    host, port = where.hostname or "", where.port or 443
    if not route.proxy:
        return _Connection(host, port, timeout=timeout, context=trust, server_name=route.server_name)
    proxy = urlsplit(route.proxy)
    if proxy.scheme != "http" or not proxy.hostname:
        raise ValueError(f"a proxy of the kind {proxy.scheme or 'without a scheme'}, where http is expected")
    tunnelled = _Connection(
        proxy.hostname, proxy.port or 80, timeout=timeout, context=trust, server_name=route.server_name or host
    )
    tunnelled.set_tunnel(host, port, _authorization(proxy))
    return tunnelled


def proxy_of(server: str) -> str:
    """Return the proxy that the environment names for a server, as Go's programs read it: none for this machine."""
    host = urlsplit(server).hostname or ""
    if host == "localhost" or _is_loopback(host) or urllib.request.proxy_bypass(host):
        return ""
    return urllib.request.getproxies().get("https", "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


class _Connection(http.client.HTTPSConnection):
    """HTTPS whose certificate may be for another name than the host that is connected to."""

    def __init__(self, host: str, port: int, *, timeout: float, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._trust, self._server_name = context, server_name or host

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._trust.wrap_socket(self.sock, server_hostname=self._server_name)

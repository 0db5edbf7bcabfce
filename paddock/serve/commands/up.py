"""`serve.up`: start a head with its scheduler and gateway."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from paddock.console.command import command
from paddock.console.parameters import Parameters, parameter
from paddock.console.progress import progress
from paddock.console.report import Report
from paddock.errors import program
from paddock.ray_labels import HEAD
from paddock.serve.admission.keys import api_keys, sums
from paddock.serve.admission.limits import MIB, MOST_TOKENS, Limits
from paddock.serve.agents.home import Home, http_url
from paddock.serve.agents.ray_process import start_head, stop
from paddock.serve.commands.connection import connected, own_report
from paddock.serve.errors import ServeInputError


@dataclass(frozen=True, kw_only=True)
class Up(Parameters):
    """Parameters of `serve.up`."""

    port: int = parameter(6379, "port for agents")
    http_port: int = parameter(8000, "port of the OpenAI-compatible interface")
    http_host: str = parameter(
        "127.0.0.1", "address on which that interface listens; one that others reach, such as 0.0.0.0, needs API keys"
    )
    dashboard: int | None = parameter(None, "port of Ray's dashboard, on loopback; by default it is not started")
    queue: int = parameter(64, "requests that may wait for a model; more get 503", ge=0)
    user_in_flight: int | None = parameter(None, "requests of one user at once; more get 429", ge=1)
    user_per_minute: int | None = parameter(None, "requests that a user may begin within a minute; more get 429", ge=1)
    body_mib: int = parameter(4, "largest body of a request, in MiB; more gets 413", ge=1)
    max_tokens: int | None = parameter(None, "maximum tokens of an answer; a request for more gets 400", ge=1)
    key_file: Path | None = parameter(
        None, "API keys, a line each, else PADDOCK_SERVE_KEYS; without keys everybody on this machine may ask"
    )
    devices: Path | None = parameter(None, "rehearse: report this file's devices, and compute on the CPU")

    def limits(self) -> Limits:
        """Return the limits of the gateway."""
        tokens = min(MOST_TOKENS, self.max_tokens or MOST_TOKENS)
        return Limits(self.queue, self.user_in_flight, self.user_per_minute, self.body_mib * MIB, tokens)

    def check_host(self, keys: Collection[str]) -> None:
        """Check that an interface which others reach has keys. Raises ServeInputError."""
        try:
            address = ipaddress.ip_address(self.http_host)
        except ValueError:
            raise ServeInputError(
                f"--http-host: {self.http_host!r} is not an IP address"
                "\n    expected: 127.0.0.1, 0.0.0.0, or one of this machine"
            ) from None
        if not address.is_loopback and not keys:
            raise ServeInputError(
                f"--http-host {address}: other machines reach it, and there are no API keys"
                "\n    expected: --key-file with keys, or PADDOCK_SERVE_KEYS\n    fix: --http-host 127.0.0.1 stays here"
            )


@dataclass(frozen=True, kw_only=True)
class Started(Report):
    """A head that runs. `access` says who may ask its gateway."""

    SCHEMA = 1
    address: str
    url: str
    token_file: str
    dashboard: str | None
    broken: dict[str, str]
    access: str

    def text(self) -> Iterator[str]:
        yield f"head   {self.address}"
        yield f"HTTP   {self.url}{self.access}"
        if self.dashboard:
            yield f"Ray    {self.dashboard}, which asks for the token"
        yield f"token  {self.token_file}: copy it to machines that join"
        yield ""
        yield f"join   {program()} serve.join {self.address} --token-file TOKEN   on another machine"
        yield f"load   {program()} serve.load MODEL --wait"

    def document(self) -> dict[str, object]:
        document = super().document()
        del document["access"]
        return document


@command(checks_values_first=True)
def up(parameters: Up) -> Started:
    """Start a head with its scheduler and gateway. Raises ServeError."""
    home, keys = Home.of(), sums(api_keys(parameters.key_file))
    parameters.check_host(keys)
    with progress() as shown:
        report = own_report(parameters.devices, HEAD, shown)
        shown.now("starting the head; it takes up to a minute")
        head = start_head(
            home, port=parameters.port, http_port=parameters.http_port, http_host=parameters.http_host, report=report,
            keys=bool(keys), dashboard=parameters.dashboard,
        )  # fmt: skip
        try:
            with connected() as (ray, _):
                from paddock.serve.deployment.cluster import start_services

                start_services(ray, parameters.http_host, parameters.http_port, keys, parameters.limits())
        except BaseException:
            stop(home, head)
            raise
    return Started(
        address=head.address,
        url=http_url(head.http_host, head.http_port, head.address.rpartition(":")[0]),
        token_file=str(home.token_path),
        dashboard=f"http://127.0.0.1:{parameters.dashboard}" if parameters.dashboard is not None else None,
        broken=dict(report.broken),
        access=_access(head.http_host, bool(keys)),
    )


def _access(host: str, keys: bool) -> str:
    if not keys:
        return ", for everybody on this machine: --key-file asks for keys"
    loopback = ipaddress.ip_address(host).is_loopback
    return "" if loopback else ", with an API key; neither key nor text is encrypted on the way"

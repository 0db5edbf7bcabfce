"""Ways out that a network without NAT lacks: endpoints of AWS's services, and hosts on the internet."""

from __future__ import annotations

from collections.abc import Iterator

from paddock.fleet import Fleet, NewNetwork, ways_out
from paddock.fleet.model.mirror import PRIVATE_ECR, registry
from paddock.fleet.ways_out import Way
from paddock.plan.engine.graph import Graph
from paddock.plan.finding import Finding, put
from paddock.plan.rules.base import Context
from paddock.plan.rules.mirror import images


def findings(fleet: Fleet, graph: Graph) -> Iterator[Finding]:
    """Yield what the parts of a fleet cannot reach. The ways out of an adopted network are the doctor's to read."""
    if isinstance(fleet.network, NewNetwork) and fleet.network.nat == "none":
        ways = ways_out.of(fleet)
        yield from _internet(fleet, graph, ways)
        yield from _services(fleet.network, ways)


def _internet(fleet: Fleet, graph: Graph, ways: tuple[Way, ...]) -> Iterator[Finding]:
    known = {"runners": (fleet.github.host,), "images-of-pods": _registries(fleet, graph)}
    needs = [
        f"{way.what} need{'s' if way.name.startswith('image-') else ''} {', '.join(hosts)}, or {way.without}"
        for way in ways
        if (hosts := known.get(way.name, way.hosts))
    ]
    if needs:
        yield Finding(
            "CFG002",
            "warning",
            "network.nat",
            f"without NAT only a way out that you add to the VPC yourself reaches the internet: {'; '.join(needs)}",
            "network.nat: single, or that way out before pulumi up"
            + ("; mirror.images for images" if known["images-of-pods"] else ""),
            (put("network", "nat", value="single"),),
        )


def _registries(fleet: Fleet, graph: Graph) -> tuple[str, ...]:
    """Return the registries on the internet that pods' images come from, where the stack names no mirror of them."""
    pulled = {pull.image for pull in images(Context(graph)) if not fleet.mirror.holds(pull.image)}
    return tuple(sorted({host for image in pulled if not PRIVATE_ECR.fullmatch(host := registry(image))}))


def _services(network: NewNetwork, ways: tuple[Way, ...]) -> Iterator[Finding]:
    def lacking(way: Way) -> list[str]:
        return [] if way.optional else [service for service in way.endpoints if service not in network.endpoints]

    every = dict.fromkeys([*network.endpoints, *(service for way in ways for service in lacking(way))])
    for way in ways:
        if missing := lacking(way):
            yield Finding(
                "CFG010",
                "warning",
                way.key,
                f"{way.what}: without NAT there is no way to {', '.join(missing)} of AWS, and {way.without} "
                f"({way.why})",
                f"{put('network', 'endpoints', value=list(every))}; or network.nat: single",
            )

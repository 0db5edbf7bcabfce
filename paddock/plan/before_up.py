"""Steps before the first `pulumi up`: what only the fleet's owner knows, or only AWS and GitHub can give.

They are not warnings: nothing is wrong with the stack, and nobody can do them in the stack file alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Network, ip_network
from typing import Any

from paddock.fleet import NewCluster, Stack
from paddock.fleet.errors import dotted
from paddock.fleet.model.github import IN_CONFIG
from paddock.fleet.model.images import print_ids
from paddock.fleet.stackfile.configuration import FLEET, decoded
from paddock.plan.finding import Step
from paddock.plan.quota import QuotaNeed

DOCUMENTATION = tuple(map(IPv4Network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))
"""TEST-NET-1 to 3 of RFC 5737: in examples everywhere, and nobody's."""
_ORGANISATION = re.compile(r"(^|github\.com/)(acme|ORG|OWNER)(@\d+)?(/|$)")
_ACCOUNT = re.compile(r"(?<!\d)(123456789012|111122223333)(?!\d)")
_ID = re.compile(r"\b[a-z]+-0123456789abcdef\d?\b")
_MY_ADDRESS = "curl -s https://checkip.amazonaws.com"


def steps(stack: Stack, needs: Iterable[QuotaNeed]) -> Iterator[Step]:
    """Yield the steps in the order to take them."""
    yield from _placeholders(stack)
    yield from _credential(stack)
    yield from _serving(stack)
    yield from _push(stack)
    yield from _access(stack)
    yield from _endpoint(stack)
    yield from _quotas(needs)


def _placeholders(stack: Stack) -> Iterator[Step]:
    values = list(_texts(decoded(stack.config.get(FLEET, "")), ()))

    def keys(is_placeholder: Callable[[str, str], object]) -> str:
        """Return the keys whose values are placeholders. Their values may be anything, so they are not repeated."""
        return ", ".join(dict.fromkeys(key for key, value in values if is_placeholder(key, value)))

    organisation = ("github.url", "images.push.repository")
    if places := keys(lambda key, value: key in organisation and _ORGANISATION.search(value)):
        yield Step("CFG004", places, f"Write your own GitHub organisation into {places}: the one there is an example's")
    numbers = {"github.app.id": "12345", "github.app.installation": "678"}
    if places := keys(lambda key, value: numbers.get(key) == value):
        yield Step(
            "CFG004",
            places,
            f"Make a GitHub App, install it in the organisation, and write its numbers into {places}: they are an "
            "example's. The App's settings show its id; the address of its installation ends with the other number",
        )
    if places := keys(lambda _, value: _is_documentation(value)):
        yield Step(
            "CFG004",
            places,
            f"Write the networks that your people and CI come from into {places}: those there are an example's and "
            "nobody's. The command prints the address you have now; add /32 to it",
            _MY_ADDRESS,
        )
    if places := keys(lambda _, value: _ACCOUNT.search(value)):
        text = f"Write your AWS account's number into {places}: the one there is an example's"
        yield Step("CFG004", places, text, "aws sts get-caller-identity --query Account --output text")
    if places := keys(lambda _, value: _ID.search(value)):
        yield Step("CFG004", places, f"Write the id that AWS shows you into {places}: the one there is an example's")


def _credential(stack: Stack) -> Iterator[Step]:
    github = stack.fleet.github
    key = "paddock:githubAppKey" if github.app else "paddock:githubToken"
    if not stack.fleet.holds("runners") or github.secret_source != IN_CONFIG or key in stack.secrets:
        return
    what, file = ("the App's private key", "app-key.pem") if github.app else ("the token", "token.txt")
    text = f"Give Pulumi {what}, which runners register with; it is kept encrypted in the stack file"
    yield Step("CFG001", key, text, f"pulumi config set --stack {stack.name} --secret {key} < {file}")


_SECRETS = {
    "paddock:servingKeys": ("the API keys of served models, a line each of at least 16 characters", "keys.txt"),
    "paddock:rayToken": ("a token for Ray's processes, of your own making: openssl rand -hex 32", "token.txt"),
    "paddock:redisPassword": ("the password of serving's Redis", "password.txt"),
}
"""Secret of serving -> in words, and the name of a file that holds it."""


def _serving(stack: Stack) -> Iterator[Step]:
    serving = stack.fleet.serving
    for key in serving.config_secrets if serving and stack.fleet.served else ():
        if key not in stack.secrets:
            what, file = _SECRETS[key]
            text = f"Give Pulumi {what}. It is kept encrypted in the stack file"
            yield Step("CFG008", key, text, f"pulumi config set --stack {stack.name} --secret {key} < {file}")


def _push(stack: Stack) -> Iterator[Step]:
    push, github = stack.fleet.images.push, stack.fleet.github
    if not (push and stack.fleet.holds("images")) or push.ids or github.kind == "server":
        return
    if _ORGANISATION.search(push.repository):
        return  # CFG004 asks for another one
    key = "images.push.repository"
    yield Step(
        "CFG009",
        key,
        f"Write the ids of {push.names} and its owner into {key}: with them in its tokens a repository that was made, "
        "renamed or moved since 2026-07-15 can assume the role that pushes images, and one that takes its names later "
        "cannot. The command prints the value",
        print_ids(push.names, github.host),
    )


def _access(stack: Stack) -> Iterator[Step]:
    cluster = stack.fleet.cluster
    if not isinstance(cluster, NewCluster) or not stack.fleet.holds("cluster"):
        return
    if admins := [name for name, entry in cluster.access.items() if entry.may_deploy]:
        yield Step(
            "CFG011",
            "cluster.access",
            f"Run pulumi up as one of the administrators that cluster.access lists ({', '.join(admins)}), or add the "
            "role that runs it with policy cluster-admin: with an administrator in the list nobody gets access by "
            "running it, and the first chart is refused. The command prints who you are now",
            "aws sts get-caller-identity --query Arn --output text",
        )


def _endpoint(stack: Stack) -> Iterator[Step]:
    cluster = stack.fleet.cluster
    if isinstance(cluster, NewCluster) and stack.fleet.holds("cluster") and not cluster.endpoint.public:
        yield Step(
            "CFG005",
            "cluster.endpoint.allow",
            "Run pulumi up inside the VPC, over a VPN or on a machine there: the cluster's API answers nowhere else, "
            "and from a laptop the update fails at the first chart. Or let your own network in with "
            "cluster.endpoint.allow; the command prints the address you have now",
            _MY_ADDRESS,
        )


def _quotas(needs: Iterable[QuotaNeed]) -> Iterator[Step]:
    for need in needs:
        if not need.request:
            continue
        spot = f" ({need.need_without_fallback:g} without fallback)" if need.need_without_fallback < need.need else ""
        yield Step(
            "QUO001",
            need.subject,
            f"Ask AWS for a higher quota, if your account has less: {need.name} ({need.code}), where the fleet needs "
            f"{need.need:g} {need.unit} at most{spot} and a new account has {need.default:g}",
            need.request,
        )


def _texts(value: Any, key: tuple[str | int, ...]) -> Iterator[tuple[str, str]]:
    """Yield every text below `value` with its key; items of a list have the key of the list."""
    if isinstance(value, str):
        yield dotted(key), value
    for name, item in value.items() if isinstance(value, dict) else ():
        yield from _texts(item, (*key, name))
    for item in value if isinstance(value, list) else ():
        yield from _texts(item, key)


def _is_documentation(value: str) -> bool:
    try:
        network = ip_network(value, strict=False)
    except ValueError:
        return False
    return isinstance(network, IPv4Network) and any(network.subnet_of(known) for known in DOCUMENTATION)

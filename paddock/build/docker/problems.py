"""Errors of docker, the engine and registries, in words of a person who can mend them."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from paddock.build.errors import BuildError, BuildInputError

_LOG = "its log" if sys.platform == "darwin" else "its log: journalctl --unit docker"
_START = "open Docker Desktop, or: colima start" if sys.platform == "darwin" else "sudo systemctl start docker"


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: str
    """A pattern; its groups and `registry` may stand in the message."""
    message: str
    expected: str
    fix: str
    kind: type[BuildError] = BuildError


_ASK = f"\n    fix: run it again; where it stays so, look at docker info and at what the engine writes to {_LOG}"
_WIDEST = 400
"""Characters of docker's own words that are shown."""

_FULL = _Rule(
    r"no space left on device|ENOSPC|Errno 28|disk quota exceeded|don't have enough free space"
    r"|not enough (?:free )?space",
    "the disk of the docker engine is full",
    "room for the image, its layers and the build cache",
    "docker builder prune, then docker image prune; docker system df shows what takes the room",
)

_FOREIGN = _Rule(
    r"exec format error",
    "a program of the image is for another processor than this machine's",
    "an image of this machine's platform, or emulation",
    "leave --platform out, or install emulation: sudo apt-get install qemu-user-static binfmt-support",
    BuildInputError,
)

_LOST = _Rule(
    r"unable to resolve docker endpoint|[Cc]urrent context \S+ is not found",
    "docker is set to an engine that it does not know",
    "a context of docker context ls, or an address such as unix:///var/run/docker.sock",
    "docker context use default, and unset DOCKER_CONTEXT and DOCKER_HOST where they are set",
    BuildInputError,
)

_ENGINE = (
    _LOST,
    _Rule(
        r"permission denied while trying to connect to the [Dd]ocker|dial unix \S+ connect: permission denied",
        "the docker daemon's socket may not be opened by this user",
        "a user in the group docker",
        "sudo usermod -aG docker $USER, then log in again (newgrp docker for this shell)",
        BuildInputError,
    ),
    _Rule(
        r"Cannot connect to the Docker daemon|failed to connect to the docker API|error during connect"
        r"|docker daemon is not running|raw stream connection|dial unix",
        "the docker daemon does not answer",
        "a running Docker Engine",
        f"{_START}; docker context ls shows which engine is meant",
        BuildInputError,
    ),
    _Rule(
        r"client version \S+ is too (?:old|new)[^\n]*",
        "docker and its engine are too far apart in age",
        "a client of about the engine's version",
        "update the older of the two; docker version names both",
        BuildInputError,
    ),
    _Rule(
        r"[Nn]o such image|does not exist locally|Unable to find image",
        "the engine has no image of this name",
        "an image that was built or pulled",
        "docker image ls shows what it has",
        BuildInputError,
    ),
    _FULL,
)

_PLATFORM = (
    _FOREIGN,
    _Rule(
        r"no match(?:ing manifest)? for (?:platform|(?P<platform>\S+/\S+)) in (?:the )?manifest",
        "the image is not published for this platform",
        "a base image that has this platform",
        "another --platform, or another base image",
        BuildInputError,
    ),
)

_IMAGE = r"(?P<image>[a-z0-9][\w.-]*[:/][\w.:/@-]*\w)"
_BASE = (
    _Rule(
        rf"{_IMAGE}:? not found",
        "there is no image {image}",
        "a name and tag that its registry has",
        "see how it is written, and which tags its registry has",
        BuildInputError,
    ),
    _Rule(
        r"pull access denied(?: for (?P<image>[^\s,]+))?|repository does not exist or may require",
        "there is no image {image}, or it is not for everyone",
        "an image that may be pulled",
        "see how it is written; where it is private: docker login {registry}",
        BuildInputError,
    ),
)

_REGISTRY = (
    _Rule(
        r"toomanyrequests|429 Too Many Requests|pull rate limit",
        "{registry} has had too many requests from here",
        "a login, which is allowed more",
        "docker login {registry}, or take the image from a mirror",
    ),
    _Rule(
        r"[Tt]he image tag '(?P<tag>[^']+)' already exists|tag is immutable|cannot be overwritten",
        "the tag is already in {registry} with another content, and its tags are immutable",
        "a tag that is not there yet",
        "use the image that is there, or remove its tag from the registry first",
    ),
    _Rule(
        r"repository with name '(?P<repository>[^']+)' does not exist",
        "{registry} has no repository {repository}",
        "a repository that exists before the push",
        "pulumi up creates the fleet's; or: aws ecr create-repository --repository-name {repository}",
    ),
    _Rule(
        r"authorization token has expired|token (?:is|has) expired|ExpiredToken",
        "the login of {registry} has expired",
        "a login of today",
        "docker login {registry}; for ECR run the command again with valid AWS credentials",
    ),
    _Rule(
        r"unauthorized|authentication required|no basic auth credentials|401 Unauthorized|status(?: code)?:? 401"
        r"|incorrect username or password",
        "{registry} wants a login, or does not take this one",
        "a user that it knows",
        "docker login {registry}",
    ),
    _Rule(
        r"denied: |access (?:to the resource )?is denied|403 Forbidden|status(?: code)?:? 403|insufficient_scope"
        r"|not authorized to perform",
        "{registry} refuses this user",
        "a user that may read and write the repository",
        "docker login {registry} as such a user, or grant it",
    ),
    _Rule(
        r"server gave HTTP response to HTTPS client",
        "{registry} speaks plain HTTP",
        "HTTPS, or a registry on loopback",
        'give it a certificate, or name it in "insecure-registries" of /etc/docker/daemon.json',
    ),
    _Rule(
        r"x509: (?P<why>[^\n\"]+)",
        "the certificate of {registry} is not trusted: {why}",
        "a certificate of an authority that the engine knows",
        "put the authority's certificate into /etc/docker/certs.d/{registry}/ca.crt",
    ),
    _Rule(
        r"(?P<why>connection refused|no such host|i/o timeout|TLS handshake timeout|network is unreachable"
        r"|no route to host|server misbehaving|[Tt]emporary failure in name resolution|Client\.Timeout exceeded"
        r"|context deadline exceeded|connection reset by peer|50[0234] [A-Z]\w+[ \w]*)",
        "{registry} cannot be reached: {why}",
        "a registry that answers at this address",
        "see how it is written, whether it runs, and the proxy settings of the docker engine",
    ),
)


def lost(output: str) -> bool:
    """Return whether docker is set to an engine that it does not know, for which older clients refuse every command."""
    return re.search(_LOST.pattern, output) is not None


def engine(output: str, action: str) -> BuildError:
    """Return the error for docker's output about the engine itself."""
    return _first((*_ENGINE, *_PLATFORM), output, action, "") or _unknown(output, action, _ASK)


def registry(output: str, action: str, registry: str) -> BuildError:
    """Return the error for the engine's output about a registry, or itself, during a pull, push or query."""
    return _first((*_ENGINE, *_REGISTRY, *_PLATFORM, *_BASE), output, action, registry) or _unknown(
        output, action, _ASK
    )


def base(output: str, action: str) -> BuildError:
    """Return the error of a build that failed outside its Dockerfile's commands: mostly of the base image.

    Words that nobody knows get no fix, as only the build knows its Dockerfile.
    """
    image = re.search(rf"^{_IMAGE}: |//(?P<host>[^/\s]+)/", output)
    host = (image["host"] or image["image"].partition("/")[0]) if image else ""
    return _first((*_ENGINE, *_PLATFORM, *_BASE, *_REGISTRY), output, action, host) or _unknown(output, action)


def hint(output: str) -> str:
    """Return the cause of a failed command on lines of its own, where its output shows it; else nothing."""
    for rule in (_FULL, _FOREIGN):
        if re.search(rule.pattern, output, re.IGNORECASE):
            return f"\n    {rule.message}\n    fix: {rule.fix}"
    return ""


def _first(rules: tuple[_Rule, ...], output: str, action: str, registry: str) -> BuildError | None:
    for rule in rules:
        if match := re.search(rule.pattern, output):
            values = {name: value or "of that name" for name, value in match.groupdict().items()}
            values.setdefault("image", "of that name")
            values["registry"] = registry or "the registry"
            return rule.kind(
                f"{action}: {rule.message.format(**values)}\n    expected: {rule.expected.format(**values)}"
                f"\n    fix: {rule.fix.format(**values)}\n    docker said: {words(output)}"
            )
    return None


def _unknown(output: str, action: str, fix: str = "") -> BuildError:
    return BuildError(f"{action}: {words(output) or 'docker does not say why'}{fix}")


def words(output: str) -> str:
    """Return docker's message on one line, without its advice on how to ask for help."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and "--help" not in line]
    line = next((line for line in lines if "Error response from daemon" in line), lines[-1] if lines else "")
    return re.sub(r"^(?:docker: )?(?:Error response from daemon: )?", "", line)[:_WIDEST]

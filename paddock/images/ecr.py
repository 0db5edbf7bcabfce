"""Amazon's registry: which one is the account's, and a login that lasts for one command."""

from __future__ import annotations

import base64

from paddock.aws.client import Aws, Clients, regions
from paddock.aws.errors import AwsError
from paddock.errors import did_you_mean
from paddock.fleet.model.mirror import PRIVATE_ECR
from paddock.images.docker import Docker
from paddock.images.errors import BuildError, BuildInputError


def is_ecr(registry: str) -> bool:
    """Return whether it is a private registry of AWS, whose login is a token from AWS."""
    return PRIVATE_ECR.fullmatch(registry) is not None


def login(docker: Docker, registry: str, clients: Clients | None = None) -> None:
    """Log `docker` in for the twelve hours that a token of AWS lasts. `clients` gives boto3's.

    Raises BuildError: credentials that are missing, expired or not allowed to, a region that AWS does not have.
    """
    match = PRIVATE_ECR.fullmatch(registry)
    if match is None:
        raise BuildInputError(
            f"{registry} is not a registry of AWS\n    expected: ACCOUNT.dkr.ecr.REGION.amazonaws.com"
            f"\n    fix: docker login {registry}"
        )
    user, _, password = base64.b64decode(_token(match["region"], clients)["authorizationToken"]).decode().partition(":")
    docker.login(registry, user, password)


def account_registry(region: str) -> str:
    """Return the host of the account's own registry in `region`. Raises BuildError, as `login` does."""
    return _token(region)["proxyEndpoint"].removeprefix("https://")


def _token(region: str, clients: Clients | None = None) -> dict[str, str]:
    # The answer names the registry as well, whatever the partition, so no right besides this one is needed.
    try:
        (token,) = Aws(region, clients).ask("ecr", "get_authorization_token")["authorizationData"]
    except AwsError as error:
        if hint := _misspelt(region):
            raise BuildInputError(f"{error}\n{hint}") from None
        raise
    except ValueError:
        raise BuildError(f"AWS gives no token for its registry in {region}") from None
    return {name: str(value) for name, value in token.items()}


def _misspelt(region: str) -> str:
    """Return the error for a region that boto3 does not know; it may not know a new one yet."""
    known = regions("ecr")
    if region in known:
        return ""
    hint = did_you_mean(region, known)
    return f"    boto3 knows no region {region}{f'; {hint}' if hint else ''}"

"""Registry, runner images and the pipeline that builds GPU machine images."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from paddock.fleet.model.base import Distinct, Matching, Model, Version
from paddock.fleet.model.runner import Image

_REPOSITORY = r"^(?:[\w.-]+/[\w.-]+|[\w.-]+@[1-9]\d{0,19}/[\w.-]+@[1-9]\d{0,19})$"
_REPOSITORY_MAX = 200


def print_ids(names: str = "OWNER/REPOSITORY", host: str = "github.com") -> str:
    """Return the command that prints a repository's names and ids, as `images.push.repository` has them."""
    elsewhere = "" if host == "github.com" else f"--hostname {host} "
    return rf"""gh api {elsewhere}repos/{names} --jq '"\(.owner.login)@\(.owner.id)/\(.name)@\(.id)"'"""


def _repository(text: str) -> str:
    if re.fullmatch(_REPOSITORY, text, re.ASCII) and len(text) <= _REPOSITORY_MAX:
        return text
    names = re.sub(r"@[^/]*|^https?://[^/]+/|\.git$", "", text)
    command = print_ids(names if re.fullmatch(r"[\w.-]+/[\w.-]+", names, re.ASCII) else "OWNER/REPOSITORY")
    if "*" in text:
        refusal = "a pattern: anyone who takes such a name would be trusted"
    elif "@" in text:
        refusal = "not a repository with two ids, its owner's and its own"
    else:
        refusal = "not a repository"
    expected = "OWNER@ID/REPOSITORY@ID; OWNER/REPOSITORY where its tokens have no ids"
    raise PydanticCustomError(
        "text", "{refusal}", {"refusal": refusal, "expected": expected, "fix": f"{command} prints it"}
    )


Repository = Annotated[
    str,
    AfterValidator(_repository),
    WithJsonSchema({"type": "string", "pattern": _REPOSITORY, "maxLength": _REPOSITORY_MAX}),
]
Branch = Annotated[str, Matching(r"^[\w./-]+$", "the name of one branch; no wildcards")]
Name = Annotated[str, Matching(r"^[a-z0-9]+([._/-][a-z0-9]+)*$", "a repository name, such as runner-gpu")]

IdentityProvider = Annotated[
    str,
    Matching(
        r"^arn:aws[a-z-]*:iam::\d{12}:oidc-provider/\S+$",
        "arn:aws:iam::123456789012:oidc-provider/token.actions.githubusercontent.com",
        fix="aws iam list-open-id-connect-providers prints those of the account",
    ),
]

Driver = Annotated[
    str, Matching(r"^\d{3}(\.\d+){0,2}$", 'a driver version or branch in quotes, such as "580.159.03" or "580"')
]


class Ids(NamedTuple):
    """Numbers that GitHub gives once: names may be taken by others, these are not."""

    owner: str
    repository: str


class Push(Model):
    """GitHub workflows that may push images and start the pipeline, by OpenID Connect: no key is stored anywhere."""

    repository: Repository
    """OWNER@ID/REPOSITORY@ID whose workflows may, on the host of `github.url`. The ids are the owner's and the
    repository's at GitHub: a repository that was made, renamed or moved since 2026-07-15 names itself by them, and is
    refused without. OWNER/REPOSITORY alone is for older repositories and GitHub Enterprise Server."""
    branch: Branch = "main"
    """The one branch that may."""
    provider: IdentityProvider | None = None
    """ARN of the account's identity provider for GitHub, where it is there already: an account has one for each
    issuer. It is used, and neither changed nor removed. By default one is made, which outlives the stack."""

    @property
    def issuer(self) -> str:
        """Issuer of `provider`, as a URL without its scheme; empty without one."""
        return (self.provider or "").partition(":oidc-provider/")[2]

    @property
    def names(self) -> str:
        """OWNER/REPOSITORY."""
        return re.sub(r"@\d+", "", self.repository)

    @property
    def ids(self) -> Ids | None:
        return Ids(*re.findall(r"@(\d+)", self.repository)) if "@" in self.repository else None

    @property
    def subjects(self) -> tuple[str, ...]:
        """Subjects of the tokens that GitHub gives to jobs on the branch: by names, and where known by ids, too.

        A repository presents the first until it is renamed, moved or opts in, and the second from then on.
        """
        return tuple(
            f"repo:{form}:ref:refs/heads/{self.branch}" for form in dict.fromkeys((self.names, self.repository))
        )


class AmiBuild(Model):
    """The EC2 Image Builder pipeline for GPU machine images."""

    enabled: bool = False
    """Make the pipeline."""
    instances: Annotated[tuple[str, ...], Distinct()] = ("g4dn.xlarge",)
    """GPU instance types it builds and tests on."""
    disk: Annotated[int, Field(ge=30, le=1000)] = 50
    """GiB of root volume, while building and at least on every node that boots the image."""
    driver: Driver | None = None
    """Driver that the image must have, such as "580.159.03" or "580"; by default what the EKS release has. Another one
    than that of the EKS release cannot be built."""
    pre_pull: bool = True
    """Take `images.runner` into the image, so that the first job on a node does not pull it."""
    schedule: Annotated[str, Matching(r"^(cron|rate)\([^()]+\)$", 'such as "cron(0 6 ? * mon *)"')] | None = None
    """Cron expression of EventBridge, such as "cron(0 6 ? * mon *)"; by default it runs only when asked."""


class Images(Model):
    """Registry and image builds."""

    repositories: Annotated[tuple[Name, ...], Distinct()] = ("runner-gpu", "cuda-builder")
    """ECR repositories to make, each under the fleet's name."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 20
    """The newest images that a repository keeps of those with CUDA, without it, and of the gateway. Signatures and
    attestations do not count; they go with their image."""
    runner: Image | None = None
    """Image of runners that name none, with tag or digest."""
    cuda: Version | None = None
    """CUDA toolkit in that image."""
    push: Push | None = None
    """The repository whose workflows may push images and start the pipeline; by default none may."""
    ami: AmiBuild = AmiBuild()
    """The pipeline for GPU machine images."""

"""Registry, runner images and the pipeline that builds GPU machine images."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from paddock.fleet.model.base import Distinct, Matching, Model, Version
from paddock.fleet.model.runner import Image

Repository = Annotated[str, Matching(r"^[\w.-]+/[\w.-]+$", "OWNER/REPOSITORY")]
Branch = Annotated[str, Matching(r"^[\w./-]+$", "the name of one branch; no wildcards")]
Name = Annotated[str, Matching(r"^[a-z0-9]+([._/-][a-z0-9]+)*$", "a repository name, such as runner-gpu")]

Driver = Annotated[
    str, Matching(r"^\d{3}(\.\d+){0,2}$", 'a driver version or branch in quotes, such as "580.159.03" or "580"')
]


class Push(Model):
    """GitHub workflows that may push images and start the pipeline, by OpenID Connect: no key is stored anywhere."""

    repository: Repository
    """OWNER/REPOSITORY whose workflows may."""
    branch: Branch = "main"
    """The one branch that may."""


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
    """Tagged images that a repository keeps."""
    runner: Image | None = None
    """Image of runners that name none, with tag or digest."""
    cuda: Version | None = None
    """CUDA toolkit in that image."""
    push: Push | None = None
    """The repository whose workflows may push images and start the pipeline; by default none may."""
    ami: AmiBuild = AmiBuild()
    """The pipeline for GPU machine images."""

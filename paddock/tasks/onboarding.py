"""First steps of somebody new: the stack file, the GitHub App, rights in AWS."""

from __future__ import annotations

from invoke.context import Context

from paddock.tasks.common import ROOT, task
from paddock.terminal import JSON_HELP, JsonOutput, optional_path, output_path


@task(
    help={
        "url": "the GitHub organisation or repository: https://github.com/ORG, or ORG, or OWNER/REPOSITORY",
        "region": "the AWS region, such as us-west-2",
        "allow": "networks that may reach the Kubernetes API, with commas, such as 203.0.113.7/32; me asks"
        " checkip.amazonaws.com for this machine's address; none: the VPC alone",
        "gpu": "the GPU of the first pool, such as t4 or l4; on a terminal init lists them with prices",
        "stack": "the name of the stack; ci by default",
        "app-id": "the GitHub App's id; may be left for later",
        "installation": "the App's installation id; may be left for later",
        "push": "the repository whose workflows push images: OWNER/REPOSITORY, or OWNER@ID/REPOSITORY@ID",
        "github-key": "read the ids of that repository with the App's private key in this file, or a token",
        "overwrite": "replace a stack file of that name that holds no secrets",
        "yes": "ask nothing: --url, --region, --allow and --gpu are then needed",
        "json": JSON_HELP,
    }
)
def init(
    c: Context,
    url: str | None = None,
    region: str | None = None,
    allow: str | None = None,
    gpu: str | None = None,
    stack: str | None = None,
    app_id: str | None = None,
    installation: str | None = None,
    push: str | None = None,
    github_key: str | None = None,
    overwrite: bool = False,
    yes: bool = False,
    json: str | None = None,
) -> None:
    """Write the stack file of a first fleet from a few answers."""
    from paddock.onboarding.init.command import Flags, run
    from paddock.operate.cli.credential import read_ids

    key = optional_path("github-key", github_key)
    flags = Flags(url, region, allow, gpu, stack, app_id, installation, overwrite, push, key)
    run(ROOT, flags, read_ids=read_ids, yes=yes, json=JsonOutput.parse(json))


@task(
    name="app",
    help={
        "url": "the organisation or repository whose jobs the runners take: https://github.com/ORG",
        "stack": "take it from this stack's file instead",
        "key": "look at the private key in this file, and show nothing of it",
        "manifest": "also write the App's manifest to this file, for those who register Apps by program",
        "operate": "also ask for Actions: why looks at jobs, verify --canary and runners.rerun start them",
        "json": JSON_HELP,
    },
)
def github_app(
    c: Context,
    url: str | None = None,
    stack: str | None = None,
    key: str | None = None,
    manifest: str | None = None,
    operate: bool = False,
    json: str | None = None,
) -> None:
    """Print how to make the GitHub App that registers runners: its form filled in, permissions, ids and key."""
    from paddock.onboarding.github_app.command import run

    run(
        ROOT,
        url=url,
        stack=stack,
        key=optional_path("key", key),
        manifest=output_path("manifest", manifest),
        operate=operate,
        json=JsonOutput.parse(json),
    )


@task(
    name="permissions",
    help={
        "stack": "the stack that pulumi up makes: Pulumi.<stack>.yaml",
        "write": "write the policies into this folder, one file each",
        "json": JSON_HELP,
    },
)
def aws_permissions(c: Context, stack: str = "dev", write: str | None = None, json: str | None = None) -> None:
    """Show the rights in AWS that pulumi up of a stack needs, as policies for a role."""
    from paddock.onboarding.permissions.command import run

    run(ROOT, stack, folder=optional_path("write", write), json=JsonOutput.parse(json))

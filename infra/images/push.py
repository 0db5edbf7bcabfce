"""Lets one branch of one repository push images and build machine images, by OpenID Connect: no key is stored."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra.component import Component, allow, policy
from infra.images.ami_pipeline import AmiPipeline
from infra.images.registry import Registry
from infra.manifests import manifest
from paddock.fleet import Fleet
from paddock.fleet.model.github import PUBLIC_ISSUER
from paddock.fleet.model.images import Push

_AMI_HOURS = 6
"""A build with its tests takes hours, and a GitHub job lasts six at most."""


class ImagePush(Component):
    """The identity provider, a role that pushes images, and one that starts the pipeline for machine images."""

    role_arn: pulumi.Output[str]
    ami_role_arn: pulumi.Output[str] | None
    """None where there is no pipeline."""

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        push: Push,
        registry: Registry,
        pipeline: AmiPipeline | None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        issuer = fleet.github.token_issuer
        trust = self._identity_provider(name, push, issuer).apply(
            lambda arn: policy(
                {
                    "Effect": "Allow",
                    "Principal": {"Federated": arn},
                    "Action": "sts:AssumeRoleWithWebIdentity",
                    "Condition": {"StringEquals": _claims(push, issuer)},
                }
            )
        )
        arns = pulumi.Output.all(*[repository.arn for repository in registry.repositories.values()])
        pushes = arns.apply(
            lambda repositories: policy(
                allow(["ecr:GetAuthorizationToken"]), allow(manifest("actions")["push"], list(repositories))
            )
        )
        self.role_arn = self._role(name, trust, pushes, hours=1)
        self.ami_role_arn = None
        if pipeline:
            builds = pulumi.Output.all(pipeline.pipeline.arn, self.account()).apply(
                lambda arns_of_builds: _builds(fleet.region, pipeline.name, *arns_of_builds)
            )
            self.ami_role_arn = self._role(f"{name}-ami", trust, builds, hours=_AMI_HOURS)
        self.register_outputs({"roleArn": self.role_arn, "amiRoleArn": self.ami_role_arn})

    def _identity_provider(self, name: str, push: Push, issuer: str) -> pulumi.Output[str]:
        """The ARN of the one provider that an account can have for an issuer: named, or made here."""
        if push.provider:
            return pulumi.Output.from_input(push.provider)
        provider = aws.iam.OpenIdConnectProvider(
            name,
            url=f"https://{issuer}",
            client_id_lists=["sts.amazonaws.com"],
            # Others of the account may use it by now; and a stack that names it from now on keeps it.
            opts=self.child(retain_on_delete=True),
        )
        return provider.arn

    def _role(
        self, name: str, trust: pulumi.Input[str], rights: pulumi.Input[str], *, hours: int
    ) -> pulumi.Output[str]:
        role = aws.iam.Role(name, assume_role_policy=trust, max_session_duration=3600 * hours, opts=self.child())
        aws.iam.RolePolicy(f"{name}-policy", role=role.name, policy=rights, opts=self.child())
        return role.arn


def _claims(push: Push, issuer: str) -> dict[str, str | list[str]]:
    """Values that the claims of a token must have."""
    subjects = list(push.subjects)
    claims: dict[str, str | list[str]] = {
        "aud": "sts.amazonaws.com",
        "sub": subjects if len(subjects) > 1 else subjects[0],
    }
    if push.ids and issuer == PUBLIC_ISSUER:
        # Anyone who takes the names after this owner could have the subject without ids, and has other ids.
        claims |= {"repository_id": push.ids.repository, "repository_owner_id": push.ids.owner}
    return {f"{issuer}:{claim}": value for claim, value in claims.items()}


def _builds(region: str, name: str, pipeline: str, account: str) -> str:
    """To start the pipeline, to follow what it builds with the logs of that, and to look at what there is."""
    builder, recipes = f"arn:aws:imagebuilder:{region}:{account}", f"{name}-recipe-*"
    followed = [f"{builder}:image/{recipes}", f"{builder}:workflow-execution/*", f"{builder}:workflow-step-execution/*"]
    logs = f"arn:aws:logs:{region}:{account}:log-group:/aws/imagebuilder/{recipes}"
    actions = manifest("actions")
    return policy(
        allow(actions["ami-read"]),
        allow(actions["ami-start"], pipeline),
        allow(actions["ami-follow"], followed),
        allow(["logs:GetLogEvents"], logs),
    )

"""Lets one branch of one repository push images, by GitHub's OpenID Connect: no key is stored anywhere."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra.component import Component, allow, policy
from infra.registry import Registry
from paddock.fleet import Fleet
from paddock.fleet.images import Push

ISSUER = "token.actions.githubusercontent.com"
_PUSH = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:DescribeImages",
    "ecr:GetDownloadUrlForLayer",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
)


class ImagePush(Component):
    """The identity provider and the role."""

    role_arn: pulumi.Output[str]

    def __init__(
        self, name: str, fleet: Fleet, push: Push, registry: Registry, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, opts)
        provider = aws.iam.OpenIdConnectProvider(
            name, url=f"https://{ISSUER}", client_id_lists=["sts.amazonaws.com"], opts=self.child()
        )
        trust = provider.arn.apply(
            lambda arn: policy(
                {
                    "Effect": "Allow",
                    "Principal": {"Federated": arn},
                    "Action": "sts:AssumeRoleWithWebIdentity",
                    "Condition": {
                        "StringEquals": {
                            f"{ISSUER}:aud": "sts.amazonaws.com",
                            f"{ISSUER}:sub": f"repo:{push.repository}:ref:refs/heads/{push.branch}",
                        }
                    },
                }
            )
        )
        role = aws.iam.Role(name, assume_role_policy=trust, max_session_duration=3600, opts=self.child())
        arns = pulumi.Output.all(*[repository.arn for repository in registry.repositories.values()])
        aws.iam.RolePolicy(
            f"{name}-policy",
            role=role.name,
            policy=arns.apply(lambda found: policy(allow(["ecr:GetAuthorizationToken"]), allow(_PUSH, list(found)))),
            opts=self.child(),
        )
        self.role_arn = role.arn
        self.register_outputs({"roleArn": role.arn})

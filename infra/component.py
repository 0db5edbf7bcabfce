"""What the components share: how children are attached, and small things AWS asks for again and again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws


class Component(pulumi.ComponentResource):
    """A room of the program. Children take providers and protection from it, never its other options."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(f"paddock:infra:{type(self).__name__}", name, {}, opts)
        self.name = name

    def child(self, **options: Any) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, **options)

    def account(self) -> pulumi.Output[str]:
        """The AWS account's number."""
        identity = aws.get_caller_identity_output(opts=pulumi.InvokeOutputOptions(parent=self))
        return identity.apply(lambda found: found.account_id)

    def role(
        self, name: str, trust: Mapping[str, Any], managed: Sequence[str] = (), inline: pulumi.Input[str] | None = None
    ) -> aws.iam.Role:
        """An IAM role with AWS's own policies, one policy of ours, or both."""
        role = aws.iam.Role(name, assume_role_policy=policy(trust), max_session_duration=3600, opts=self.child())
        for arn in managed:
            attachment = f"{name}-{arn.rpartition('/')[2]}"
            aws.iam.RolePolicyAttachment(attachment, role=role.name, policy_arn=arn, opts=self.child())
        if inline is not None:
            aws.iam.RolePolicy(f"{name}-policy", role=role.name, policy=inline, opts=self.child())
        return role

    def key(self, name: str, purpose: str, services: Sequence[str] = ()) -> aws.kms.Key:
        """A KMS key that rotates every year. `services` are the AWS services that may use it."""
        document = self.account().apply(
            lambda account: policy(
                {
                    "Sid": "Account",
                    "Effect": "Allow",
                    "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
                    "Action": "kms:*",
                    "Resource": "*",
                },
                *(
                    {
                        "Sid": "Service",
                        "Effect": "Allow",
                        "Principal": {"Service": service},
                        "Action": [
                            "kms:Encrypt",
                            "kms:Decrypt",
                            "kms:ReEncrypt*",
                            "kms:GenerateDataKey*",
                            "kms:Describe*",
                        ],
                        "Resource": "*",
                        "Condition": {"StringEquals": {"aws:SourceAccount": account}},
                    }
                    for service in services
                ),
            )
        )
        return aws.kms.Key(
            name,
            description=purpose,
            enable_key_rotation=True,
            deletion_window_in_days=30,
            policy=document,
            opts=self.child(protect=True),
        )


def policy(*statements: Mapping[str, Any]) -> str:
    """An IAM policy document."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(actions: Sequence[str], resources: Any = "*", **more: Any) -> dict[str, Any]:
    """One statement that allows `actions` on `resources`."""
    return {"Effect": "Allow", "Action": list(actions), "Resource": resources, **more}


def assumed_by(service: str) -> dict[str, Any]:
    """Trust in an AWS service."""
    return {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}


POD_IDENTITY: dict[str, Any] = {
    "Effect": "Allow",
    "Principal": {"Service": "pods.eks.amazonaws.com"},
    "Action": ["sts:AssumeRole", "sts:TagSession"],
}
"""Trust in EKS Pod Identity: the association names the one service account that gets the role."""

PRIVILEGED_BECAUSE = "paddock.dev/privileged-because"
"""Annotation of a namespace that allows privileged pods: why it must."""

LINK_LOCAL = "169.254.0.0/16"
"""IMDS, and the agent that hands out Pod Identity credentials."""

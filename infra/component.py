"""Parts that the components share: how children are attached, and small things AWS asks for again and again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pulumi
import pulumi_aws as aws

from infra.manifests import manifest


class Component(pulumi.ComponentResource):
    """A room of the program. Children take providers from it, never its other options.

    What holds data is protected one by one: a protected component would hold its children, which must change, too.
    """

    formerly: ClassVar[Sequence[str]] = ()
    """Names that the class had: a stack that was made with one of them keeps the component, and all that is in it."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        if aliases := [pulumi.Alias(type_=_type(former)) for former in self.formerly]:
            opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(aliases=aliases))
        super().__init__(_type(type(self).__name__), name, {}, opts)
        self.name = name
        self.permissions: list[pulumi.Resource] = []
        """Policies of the roles made here. A role is useless without them, and its users do not depend on them."""

    def child(self, **options: Any) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, **options)

    def account(self) -> pulumi.Output[str]:
        """The AWS account's number."""
        identity = aws.get_caller_identity_output(opts=pulumi.InvokeOutputOptions(parent=self))
        return identity.apply(lambda caller: caller.account_id)

    def secret(self, source: str, key: str) -> pulumi.Output[str]:
        """A credential from its place: a Secrets Manager ARN, or the Pulumi secret `paddock:KEY`. Raises RunError."""
        if source.startswith("arn:"):
            secret = aws.secretsmanager.get_secret_version_output(
                secret_id=source, opts=pulumi.InvokeOutputOptions(parent=self)
            )
            return pulumi.Output.secret(secret.apply(lambda version: version.secret_string))
        value = pulumi.Config("paddock").get_secret(key)
        if value is None:
            raise pulumi.RunError(f"paddock:{key} is not set\n    fix: pulumi config set --secret paddock:{key}")
        return value

    def role(
        self, name: str, trust: Mapping[str, Any], managed: Sequence[str] = (), inline: pulumi.Input[str] | None = None
    ) -> aws.iam.Role:
        """An IAM role with AWS's own policies, one policy of ours, or both."""
        role = aws.iam.Role(name, assume_role_policy=policy(trust), max_session_duration=3600, opts=self.child())
        for arn in managed:
            attachment = f"{name}-{arn.rpartition('/')[2]}"
            self.permissions.append(
                aws.iam.RolePolicyAttachment(attachment, role=role.name, policy_arn=arn, opts=self.child())
            )
        if inline is not None:
            self.permissions.append(
                aws.iam.RolePolicy(f"{name}-policy", role=role.name, policy=inline, opts=self.child())
            )
        return role

    def pod_identity(
        self,
        cluster: pulumi.Input[str],
        namespace: pulumi.Input[str],
        account: str,
        role: aws.iam.Role,
        needs: Sequence[pulumi.Resource],
        name: str = "",
    ) -> aws.eks.PodIdentityAssociation:
        """The role of the pods of one service account."""
        return aws.eks.PodIdentityAssociation(
            name or self.name,
            cluster_name=cluster,
            namespace=namespace,
            service_account=account,
            role_arn=role.arn,
            opts=self.child(depends_on=list(needs)),
        )

    def log_group(self, name: str, purpose: str, region: str, days: int, group: str) -> aws.cloudwatch.LogGroup:
        """A log group that is encrypted with a key of its own."""
        key = self.key(name, purpose, logs_of=region)
        return aws.cloudwatch.LogGroup(name, name=group, retention_in_days=days, kms_key_id=key.arn, opts=self.child())

    def key(self, name: str, purpose: str, *, logs_of: str | None = None, volumes_of: str | None = None) -> aws.kms.Key:
        """A KMS key that rotates every year: for the account, and in a region for its log groups or EBS volumes."""
        document = self.account().apply(lambda account: policy(*_key_policy(account, logs_of, volumes_of)))
        return aws.kms.Key(
            name,
            description=purpose,
            enable_key_rotation=True,
            deletion_window_in_days=30,
            policy=document,
            opts=self.child(protect=True),
        )


def _type(name: str) -> str:
    return f"paddock:infra:{name}"


def _key_policy(account: str, logs_of: str | None, volumes_of: str | None) -> Iterator[dict[str, Any]]:
    statements = manifest("key-policy", account=account, region=logs_of or volumes_of or "")
    yield statements["account"]
    if logs_of:
        yield statements["logs"]
    if volumes_of:
        yield statements["volumes"]


def policy(*statements: Mapping[str, Any]) -> str:
    """An IAM policy document."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(actions: Sequence[str], resources: Any = "*", **more: Any) -> dict[str, Any]:
    """One statement that allows `actions` on `resources`."""
    return {"Effect": "Allow", "Action": list(actions), "Resource": resources, **more}


def writes_logs(group: aws.cloudwatch.LogGroup, *more: str) -> pulumi.Output[str]:
    """A policy that lets its owner write into one log group."""
    actions = ["logs:CreateLogStream", "logs:PutLogEvents", *more]
    return group.arn.apply(lambda arn: policy(allow(actions, f"{arn}:*")))


def assumed_by(service: str) -> dict[str, Any]:
    """Trust in an AWS service."""
    return {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}


POD_IDENTITY: dict[str, Any] = {
    "Effect": "Allow",
    "Principal": {"Service": "pods.eks.amazonaws.com"},
    "Action": ["sts:AssumeRole", "sts:TagSession"],
}
"""Trust in EKS Pod Identity: the association names the one service account that gets the role."""

LINK_LOCAL = "169.254.0.0/16"
"""IMDS, and the agent that hands out Pod Identity credentials."""

POD_IDENTITY_AGENT = "169.254.170.23/32"
"""That agent alone, on port 80 (docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html, 2026-11-23)."""

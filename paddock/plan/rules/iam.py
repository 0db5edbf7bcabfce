"""Rights in AWS: policies, trust and keys."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from paddock.fleet.model.github import PUBLIC_ISSUER
from paddock.plan import fields
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Resource
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, violation

POLICIES = (types.ROLE_POLICY, types.IAM_POLICY, types.USER_POLICY, types.GROUP_POLICY)
ATTACHMENTS = (
    types.ROLE_POLICY_ATTACHMENT,
    types.POLICY_ATTACHMENT,
    types.USER_POLICY_ATTACHMENT,
    types.GROUP_POLICY_ATTACHMENT,
)
ADMINS = frozenset({"AdministratorAccess", "IAMFullAccess", "PowerUserAccess"})


def granted(context: Context) -> Iterator[tuple[Resource, Mapping[str, Any]]]:
    """Yield every statement that grants permissions to an identity."""
    for item in context.all(*POLICIES):
        for statement in fields.allow_statements(context.read(item, "policy")):
            yield item, statement
    for role in context.all(types.ROLE):
        for inline in fields.items(role.inputs, "inlinePolicies"):
            for statement in fields.allow_statements(fields.get(inline, "policy")):
                yield role, statement


def attached(context: Context) -> Iterator[tuple[Resource, str]]:
    """Yield every managed policy of an identity, by its ARN."""
    for item in context.all(*ATTACHMENTS):
        if arn := fields.text(item.inputs, "policyArn"):
            yield item, arn
    for role in context.all(types.ROLE):
        for arn in fields.items(role.inputs, "managedPolicyArns"):
            yield role, str(arn)


def of_node(context: Context, item: Resource) -> bool:
    """Return whether something is the role of a node group, or is given to one."""
    return any(
        item.urn == role or role in item.property_dependencies.get("role", ())
        for group in context.all(types.NODE_GROUP)
        for role in group.property_dependencies.get("nodeRoleArn", ())
    )


class PullOnly(Rule):
    id = "PAD016"
    severity: ClassVar[Severity] = "error"
    title = "Nodes may pull images and nothing else in ECR"
    why = "A job that escapes to its node must not be able to push the image that all others start from."
    fix = "AmazonEC2ContainerRegistryPullOnly on the node role"
    equivalents = ("CIS 5.1.3",)

    def check(self, context: Context) -> Iterator[Violation]:
        for item, arn in attached(context):
            name = arn.rpartition("/")[2]
            if of_node(context, item) and "ContainerRegistry" in name and not name.endswith("PullOnly"):
                fix = "AmazonEC2ContainerRegistryPullOnly in its place"
                yield violation(item, f"{name} on a node role", fix=fix)
        for item, statement in granted(context):
            pushes = [
                a
                for a in fields.as_list(statement.get("Action"))
                if _matches_any(str(a), ("ecr:PutImage", "ecr:DeleteRepository"))
            ]
            if of_node(context, item) and pushes and "*" not in pushes:
                listed = ", ".join(map(str, pushes))
                yield violation(item, f"a node role may {listed}", fix=f"remove {listed} from Action")


_NOT_FOR_NODES: Mapping[str, tuple[str, str]] = {
    "AmazonEKS_CNI_Policy": (
        "moves the VPC's addresses and interfaces",
        "it on a role of its own, which Pod Identity gives to kube-system/aws-node",
    ),
    "AmazonSSMManagedInstanceCore": (
        "reads every SSM parameter of the account",
        "a policy with the actions of Session Manager alone",
    ),
}
"""AWS's policy -> (what it does, what to have in its place)."""


class NodeRole(Rule):
    id = "PAD039"
    severity: ClassVar[Severity] = "error"
    milder = True
    title = "A node's role neither moves the VPC's addresses nor reads the account's parameters and secrets"
    why = "A job that becomes root on its node, as any job with a privileged Docker daemon can, has the node's role."
    fix = "Pod Identity for kube-system/aws-node; of Systems Manager the actions of Session Manager alone"

    def check(self, context: Context) -> Iterator[Violation]:
        # In a cluster of another owner the CNI may have no role but the node's.
        adopted = not any(context.all(types.CLUSTER))
        for item, arn in attached(context):
            name = arn.rpartition("/")[2]
            if of_node(context, item) and name in _NOT_FOR_NODES:
                milder: Severity | None = "info" if adopted and "CNI" in name else None
                does, fix = _NOT_FOR_NODES[name]
                yield violation(item, f"{name} on a node role {does}", milder, fix=fix)
        for item, statement in granted(context):
            data = [a for a in fields.as_list(statement.get("Action")) if _matches_any(str(a), _SECRETS)]
            if of_node(context, item) and data:
                listed = ", ".join(map(str, data))
                yield violation(item, f"a node role may {listed}", fix=f"remove {listed} from Action")


_SECRETS = ("ssm:GetParameter*", "secretsmanager:GetSecretValue", "s3:GetObject", "ec2:AssignPrivateIpAddresses")


class KeysRotate(Rule):
    id = "PAD017"
    severity: ClassVar[Severity] = "error"
    title = "KMS keys rotate, and their policies name who may use them"
    why = "A key that everybody may use encrypts nothing; one that never rotates loses everything at once."
    fix = "enableKeyRotation: true, and a key policy with named principals"
    equivalents = ("CKV_AWS_7", "CKV_AWS_33", "CKV2_AWS_64", "AWS-0065")

    def check(self, context: Context) -> Iterator[Violation]:
        for key in context.all(types.KMS_KEY):
            symmetric = fields.text(key.inputs, "customerMasterKeySpec") in ("", "SYMMETRIC_DEFAULT")
            if symmetric and not fields.is_on(fields.get(key.inputs, "enableKeyRotation")):
                yield violation(key, "it does not rotate", fix="enableKeyRotation: true")
            policy = context.read(key, "policy")
            if not fields.is_set(policy):
                yield violation(key, "it has no policy of its own", fix="policy: a document with named principals")
            for statement in fields.allow_statements(policy):
                if ("AWS", "*") in fields.principals(statement) and not statement.get("Condition"):
                    fix = "an ARN in Principal, or a Condition"
                    yield violation(key, "its policy lets everybody use it", fix=fix)


class NoAdministrators(Rule):
    id = "PAD018"
    severity: ClassVar[Severity] = "error"
    title = "Nothing is an administrator, and PassRole names its role"
    why = "A runner fleet is where other people's code runs: one such policy and the account is theirs."
    fix = "list the actions; give iam:PassRole the ARN of the one role"
    equivalents = (
        "CKV_AWS_1", "CKV_AWS_49", "CKV_AWS_62", "CKV_AWS_63", "CKV_AWS_274", "CKV_AWS_275",
        "CKV2_AWS_40", "CKV2_AWS_56",
        "AWS-0057", "AWS-0342",
    )  # fmt: skip

    def check(self, context: Context) -> Iterator[Violation]:
        for item, arn in attached(context):
            if arn.rpartition("/")[2] in ADMINS:
                fix = "a policy that lists the actions in its place"
                yield violation(item, f"{arn.rpartition('/')[2]} is given away", fix=fix)
        for item, statement in granted(context):
            actions, all_resources = (
                fields.as_list(statement.get("Action")),
                "*" in fields.as_list(statement.get("Resource")),
            )
            if any(action in ("*", "*:*", "iam:*") for action in actions) or "NotAction" in statement:
                fix = "list the actions in Action"
                yield violation(item, "every action, or every action on IAM, is allowed", fix=fix)
            if all_resources and "iam:PassRole" in actions and not statement.get("Condition"):
                yield violation(item, "iam:PassRole may pass every role", fix="Resource: the ARN of the one role")


_READS = ("*:Describe*", "*:List*", "*:Get*", "*:BatchGet*", "*:Search*")
_DATA = (
    "s3:GetObject*", "ssm:GetParameter*", "secretsmanager:*", "kms:*", "dynamodb:*Get*", "lambda:GetFunction*",
    "ec2:GetPasswordData",
    "sts:Get*Token", "iam:GetAccountAuthorizationDetails", "codecommit:*", "sqs:*", "logs:GetLog*", "ecr:BatchGetImage",
    "ecr:GetDownloadUrlForLayer",
)  # fmt: skip
"""Reads that take data out rather than look at what there is."""


def _matches_any(action: str, patterns: Sequence[str]) -> bool:
    """Return whether an action of a policy, which may have wildcards of its own, can be one of `patterns`."""
    low = action.lower()
    return any(
        fnmatch.fnmatchcase(low, pattern.lower()) or fnmatch.fnmatchcase(pattern.lower(), low) for pattern in patterns
    )


class NamedResources(Rule):
    id = "PAD019"
    severity: ClassVar[Severity] = "error"
    title = "Whatever writes, or reads data, names what it may write or read"
    why = "Rights on every resource are how a small role becomes a large one, and how data leaves."
    fix = "put the ARNs into Resource, or a Condition on a tag"
    equivalents = (
        *(f"CKV_AWS_{n}" for n in range(107, 112)), *(f"CKV_AWS_{n}" for n in range(286, 291)),
        "CKV_AWS_355", "CKV_AWS_356",
    )  # fmt: skip

    def check(self, context: Context) -> Iterator[Violation]:
        for item, statement in granted(context):
            if "*" not in fields.as_list(statement.get("Resource")) or statement.get("Condition"):
                continue
            wide = [str(action) for action in fields.as_list(statement.get("Action")) if self._too_wide(str(action))]
            if wide:
                yield violation(item, f"{', '.join(wide)} on every resource")

    @staticmethod
    def _too_wide(action: str) -> bool:
        if action in ("*", "*:*", "iam:*", "iam:PassRole"):  # PAD018 reports these
            return False
        if fnmatch.fnmatchcase(action, "ssmmessages:*") or action == "ssm:UpdateInstanceInformation":
            return False  # of the instance itself; AWS takes no resource for these
        reads = any(fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in _READS)
        return not reads or _matches_any(action, _DATA)


def trusts(context: Context) -> Iterator[tuple[Resource, Mapping[str, Any]]]:
    """Yield every statement of a role's trust policy."""
    for role in context.all(types.ROLE):
        for statement in fields.allow_statements(context.read(role, "assumeRolePolicy")):
            yield role, statement


_ISSUER = re.compile(rf"{re.escape(PUBLIC_ISSUER)}|token\.actions\.[\w.-]+\.ghe\.com|[\w.:-]+/_services/token")
"""GitHub's addresses as those of a token's issuer: github.com, ghe.com, Enterprise Server."""
_SUBJECT = re.compile(r"repo:[^/:*?]+/[^/:*?]+:(ref:refs/(heads|tags)/|environment:)[^*?]+")
_SUBJECT_WITH_IDS = re.compile(r"repo:[^/:@]+@\d+/[^/:@]+@\d+:")


class GitHubTrust(Rule):
    id = "PAD020"
    severity: ClassVar[Severity] = "error"
    title = "GitHub's tokens are trusted for one repository and one branch, tag or environment"
    why = "With a wildcard in sub, every pull request of every fork, or anybody on GitHub, can take the role."
    fix = (
        'StringEquals on aud (sts.amazonaws.com) and sub ("repo:ORG/REPO:environment:NAME" or ":ref:refs/heads/NAME"; '
        "ORG@ID/REPO@ID for what was made since 2026-07-15)"
    )
    equivalents = ("CKV_AWS_358", "CKV_AWS_393")

    def check(self, context: Context) -> Iterator[Violation]:
        for provider in context.all(types.OPEN_ID_CONNECT_PROVIDER):
            audiences = fields.items(provider.inputs, "clientIdLists")
            issuer = fields.text(provider.inputs, "url").removeprefix("https://")
            if _ISSUER.fullmatch(issuer.removesuffix("/")) and audiences != ["sts.amazonaws.com"]:
                fix = "clientIdLists: [sts.amazonaws.com]"
                yield violation(provider, "its audience must be sts.amazonaws.com and nothing else", fix=fix)
        for role, statement in trusts(context):
            if self._is_github(statement):
                yield from (violation(role, message, fix=fix) for message, fix in self._wrong(statement))

    @staticmethod
    def _is_github(statement: Mapping[str, Any]) -> bool:
        if "sts:AssumeRoleWithWebIdentity" not in fields.as_list(statement.get("Action")):
            return False
        federated = " ".join(who for kind, who in fields.principals(statement) if kind == "Federated")
        return "oidc.eks." not in federated and "cognito" not in federated

    @staticmethod
    def _wrong(statement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield (what is wrong, what to write)."""
        exact = fields.mapping(statement, "Condition", "StringEquals")
        issuer = next(
            (key.rpartition(":")[0] for key in exact if _ISSUER.fullmatch(key.rpartition(":")[0])), PUBLIC_ISSUER
        )
        fix = f'StringEquals on {issuer}:sub: "repo:ORG/REPO:environment:NAME", or ":ref:refs/heads/NAME" at the end'
        if fields.as_list(exact.get(f"{issuer}:aud")) != ["sts.amazonaws.com"]:
            pinned = f"StringEquals on {issuer}:aud: sts.amazonaws.com"
            yield "aud is not pinned to sts.amazonaws.com with StringEquals", pinned
        subjects = fields.as_list(exact.get(f"{issuer}:sub"))
        if not subjects:
            yield "sub is not pinned with StringEquals", fix
        for subject in subjects:
            if not _SUBJECT.fullmatch(str(subject)):
                yield f'sub "{subject}" does not name one repository and one branch, tag or environment', fix
            elif "@" in str(subject).split(":")[1] and not _SUBJECT_WITH_IDS.match(str(subject)):
                ids = f'{issuer}:sub: "repo:ORG@ID/REPO@ID:..." with the ids of both'
                yield f'sub "{subject}" is in no token: GitHub writes both ids, or none', ids


class NamedPrincipals(Rule):
    id = "PAD021"
    severity: ClassVar[Severity] = "error"
    title = "Roles say who may take them"
    why = "A role that everybody, or everybody in an account, may take has no owner."
    fix = "name the service or the role in Principal"
    equivalents = ("CKV_AWS_60", "CKV_AWS_61")

    def check(self, context: Context) -> Iterator[Violation]:
        for role, statement in trusts(context):
            for kind, who in fields.principals(statement):
                whole = kind == "AWS" and (who.endswith(":root") or re.fullmatch(r"\d{12}", who))
                if who == "*" or (whole and not statement.get("Condition")):
                    yield violation(role, f"{who} may take it")


RULES = (PullOnly(), NodeRole(), KeysRotate(), NoAdministrators(), NamedResources(), GitHubTrust(), NamedPrincipals())

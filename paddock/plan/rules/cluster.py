"""The control plane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from paddock import catalog
from paddock.plan import fields
from paddock.plan.engine import resource_types as types
from paddock.plan.finding import Severity, put
from paddock.plan.rules.base import Context, Rule, Violation, violation

LOG_TYPES = frozenset({"api", "audit", "authenticator", "controllerManager", "scheduler"})
STATE = (
    types.CLUSTER,
    types.KMS_KEY,
    types.REPOSITORY,
    types.BUCKET,
    types.BUCKET_V2,
    types.EFS_FILE_SYSTEM,
    types.LUSTRE_FILE_SYSTEM,
    types.DYNAMODB_TABLE,
    types.SECRETS_MANAGER_SECRET,
)
"""What cannot be made again with what was in it."""


class SecretsEncrypted(Rule):
    id = "PAD001"
    severity: ClassVar[Severity] = "error"
    title = "Kubernetes secrets are encrypted with a KMS key of ours"
    why = "etcd holds the credential that runners register with; EKS's own key cannot be revoked, audited or denied."
    fix = "give the cluster encryptionConfig with resources [secrets] and a key"
    equivalents = ("CKV_AWS_58", "AWS-0039", "CIS 5.3.1")

    def check(self, context: Context) -> Iterator[Violation]:
        for cluster in context.all(types.CLUSTER):
            config = context.read(cluster, "encryptionConfig")
            if fields.is_unknown(config) or fields.has_unknown(fields.get(config, "resources")):
                continue
            key = fields.get(config, "provider", "keyArn")
            if "secrets" not in fields.items(config, "resources") or not fields.is_set(key):
                yield violation(cluster, "secrets are not encrypted with a key of ours")


class ControlPlaneLogs(Rule):
    id = "PAD002"
    severity: ClassVar[Severity] = "warning"
    title = "All five control-plane logs are kept"
    why = "Who did what in the cluster is known afterwards only from the audit and authenticator logs."
    fix = "enabledClusterLogTypes: api, audit, authenticator, controllerManager, scheduler"
    equivalents = ("CKV_AWS_37", "AWS-0038", "CIS 2.1.1")

    def check(self, context: Context) -> Iterator[Violation]:
        for cluster in context.all(types.CLUSTER):
            enabled = context.read(cluster, "enabledClusterLogTypes")
            if fields.is_unknown(enabled) or any(map(fields.is_unknown, fields.as_list(enabled))):
                continue
            if missing := sorted(LOG_TYPES - set(map(str, fields.as_list(enabled)))):
                yield violation(cluster, f"no logs of {', '.join(missing)}")


class EndpointClosed(Rule):
    id = "PAD003"
    severity: ClassVar[Severity] = "error"
    title = "The Kubernetes API is not open to the internet"
    why = "EKS opens the public endpoint to every address by default; a leaked token then works from anywhere."
    fix = "cluster.endpoint.allow: the networks of your people and CI, or leave it out for a private endpoint only"
    equivalents = ("CKV_AWS_39", "CKV_AWS_38", "AWS-0040", "AWS-0041", "CIS 5.4.1", "CIS 5.4.2")

    def check(self, context: Context) -> Iterator[Violation]:
        for cluster in context.all(types.CLUSTER):
            network = context.read(cluster, "vpcConfig")
            if fields.is_unknown(network):
                continue
            public, cidrs = fields.get(network, "endpointPublicAccess"), fields.get(network, "publicAccessCidrs")
            if public is None or fields.is_on(public):
                wide = [cidr for cidr in fields.as_list(cidrs) if fields.is_internet(cidr)]
                if wide or not fields.is_set(cidrs):
                    fix = "cluster.endpoint.allow: those of your people and CI, or nothing, for the VPC alone"
                    yield violation(cluster, f"the API answers {', '.join(wide) or 'every address'}", fix=fix)
            if not fields.is_on(fields.get(network, "endpointPrivateAccess")):
                fix = "vpcConfig.endpointPrivateAccess: true"
                yield violation(cluster, "nodes reach the API only over its public endpoint", fix=fix)


class SupportedVersion(Rule):
    id = "PAD004"
    severity: ClassVar[Severity] = "warning"
    title = "The Kubernetes version is in standard support, and stays out of extended support"
    why = "Past standard support EKS charges six times the price for the control plane, and patches come late or never."
    fix = "cluster.version: a later minor; cluster.support: standard"
    equivalents = ("CKV_AWS_339",)

    def check(self, context: Context) -> Iterator[Violation]:
        for cluster in context.all(types.CLUSTER):
            version, support = (
                context.read(cluster, "version"),
                fields.get(cluster.inputs, "upgradePolicy", "supportType"),
            )
            dates = catalog.eks_versions().get(version) if isinstance(version, str) else None
            if version is None:
                fix = "cluster.version: a minor in standard support, in quotes"
                yield violation(cluster, "no version is given, so EKS chooses one", fix=fix)
            elif dates and context.today >= dates.end_of_standard_support:
                message = f"standard support of {version} ended on {dates.end_of_standard_support}"
                yield violation(cluster, message, fix="cluster.version: the next minor, one at a time")
            if support != "STANDARD" and not fields.is_unknown(support):
                is_standard = dates is not None and context.today < dates.end_of_standard_support
                edits = (put("cluster", "support", value="standard"),) if context.fleet and is_standard else ()
                message = "after standard support ends the cluster costs the price of extended support"
                fix = (
                    "" if edits else "cluster.version: one that is in standard support; then cluster.support: standard"
                )
                yield violation(cluster, message, fix=fix, edits=edits)


class AccessByEntries(Rule):
    id = "PAD005"
    severity: ClassVar[Severity] = "error"
    title = "Access is by access entries, nobody is admin by accident"
    why = "The aws-auth map is edited from inside the cluster, and the creator of a cluster is its admin for ever."
    fix = "authenticationMode API, bootstrapClusterCreatorAdminPermissions false, entries for single roles"
    equivalents = ("CIS 4.1.7", "CIS 5.5.1")

    def check(self, context: Context) -> Iterator[Violation]:
        for cluster in context.all(types.CLUSTER):
            access = context.read(cluster, "accessConfig")
            if fields.is_unknown(access):
                continue
            mode = fields.get(access, "authenticationMode")
            if mode != "API" and not fields.is_unknown(mode):
                fix = "accessConfig.authenticationMode: API"
                yield violation(cluster, f"authentication mode is {mode or 'CONFIG_MAP'}", fix=fix)
            creator = fields.get(access, "bootstrapClusterCreatorAdminPermissions")
            if creator is not False and not fields.is_unknown(creator):
                fix = "accessConfig.bootstrapClusterCreatorAdminPermissions: false; cluster.access for who needs it"
                yield violation(cluster, "the creator of the cluster becomes its admin", fix=fix)
        for entry in context.all(types.ACCESS_ENTRY, types.ACCESS_POLICY_ASSOCIATION):
            who = fields.text(entry.inputs, "principalArn")
            if who == "*" or who.endswith(":root"):
                fix = "cluster.access.<name>.principal: the ARN of one role"
                yield violation(entry, f"{who} is everybody in an account", fix=fix)
            if "system:masters" in fields.items(entry.inputs, "kubernetesGroups"):
                fix = "cluster.access.<name>.policy: cluster-admin in place of the group"
                yield violation(entry, "system:masters cannot be revoked by any role binding", fix=fix)


class Protected(Rule):
    id = "PAD006"
    severity: ClassVar[Severity] = "warning"
    title = "What holds state is protected from deletion, and people's access is not"
    why = (
        "One wrong `pulumi destroy`, or a rename, would take cluster, images or the keys that they are encrypted with;"
        " a person's access must end on the day that it should."
    )
    fix = "cluster.deletionProtection: true; ResourceOptions(protect=True) on each resource that holds data, not on all"

    def check(self, context: Context) -> Iterator[Violation]:
        for cluster in context.all(types.CLUSTER):
            if not fields.is_on(fields.get(cluster.inputs, "deletionProtection")):
                edits = (put("cluster", "deletionProtection", value=True),) if context.fleet else ()
                fix = "" if edits else "deletionProtection: true"
                yield violation(cluster, "EKS would delete it when asked to", fix=fix, edits=edits)
        for held in context.all(*STATE):
            if not held.protect:
                yield violation(held, "Pulumi would delete it when asked to", fix="ResourceOptions(protect=True)")
        for entry in context.all(types.ACCESS_ENTRY, types.ACCESS_POLICY_ASSOCIATION):
            if entry.protect:
                fix = "ResourceOptions(protect=False) on access entries"
                yield violation(entry, "access that is protected cannot be revoked", fix=fix)


RULES = (SecretsEncrypted(), ControlPlaneLogs(), EndpointClosed(), SupportedVersion(), AccessByEntries(), Protected())

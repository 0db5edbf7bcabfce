"""Boot of nodes: launch templates, user data and machine images."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar

import yaml

from paddock.plan import fields
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Resource
from paddock.plan.engine.values import KEYS, Secret
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, violation
from paddock.plan.rules.network import SSH, has_port, rules


def _metadata(context: Context) -> Iterator[tuple[Resource, Any]]:
    """IMDS settings of everything that starts instances."""
    for item in context.all(types.LAUNCH_TEMPLATE, types.INSTANCE):
        yield item, fields.get(item.inputs, "metadataOptions")
    for item in context.all(types.INFRASTRUCTURE_CONFIGURATION):
        yield item, fields.get(item.inputs, "instanceMetadataOptions")


class MetadataTokens(Rule):
    id = "PAD008"
    severity: ClassVar[Severity] = "error"
    title = "Instance metadata answers only with a session token (IMDSv2)"
    why = "With IMDSv1 one request that a job is tricked into sending returns the node's credentials."
    fix = "metadataOptions.httpTokens: required, in a launch template of our own"
    equivalents = ("CKV_AWS_79", "AWS-0028", "AWS-0130")

    def check(self, context: Context) -> Iterator[Violation]:
        for item, options in _metadata(context):
            tokens = fields.get(options, "httpTokens")
            if (
                tokens != "required"
                and not fields.is_unknown(tokens)
                and fields.get(options, "httpEndpoint") != "disabled"
            ):
                fix = "metadataOptions.httpTokens: required"
                yield violation(item, f"httpTokens is {tokens or 'not set'}", fix=fix)
        for group in context.all(types.NODE_GROUP):
            if not fields.is_set(fields.get(group.inputs, "launchTemplate")):
                fix = "launchTemplate: one of ours, with metadataOptions.httpTokens: required"
                yield violation(group, "without a launch template of ours EKS leaves IMDSv1 on", fix=fix)


class MetadataHops(Rule):
    id = "PAD009"
    severity: ClassVar[Severity] = "error"
    title = "Pods cannot reach instance metadata (hop limit 1)"
    why = "At two hops every pod can take the node's role; pods have Pod Identity for what they may do."
    fix = "metadataOptions.httpPutResponseHopLimit: 1"
    equivalents = ("CKV_AWS_341",)

    def check(self, context: Context) -> Iterator[Violation]:
        for item, options in _metadata(context):
            hops = fields.get(options, "httpPutResponseHopLimit")
            if hops != 1 and not fields.is_unknown(hops) and fields.get(options, "httpEndpoint") != "disabled":
                yield violation(item, f"the hop limit is {hops or 'left to the image'}")


class DisksEncrypted(Rule):
    id = "PAD010"
    severity: ClassVar[Severity] = "error"
    title = "Every disk is encrypted"
    why = "Checkouts, caches and images stay on a volume after the job; anyone who gets a snapshot reads them."
    fix = 'ebs.encrypted: "true" for every block device, encrypted: "true" for storage classes'
    equivalents = ("AWS-0008", "AWS-0131", "CKV_AWS_3", "CKV_AWS_189")

    def check(self, context: Context) -> Iterator[Violation]:
        for item in context.all(types.LAUNCH_TEMPLATE, types.IMAGE_RECIPE):
            devices = fields.items(item.inputs, "blockDeviceMappings")
            if not devices and not fields.is_unknown(fields.get(item.inputs, "blockDeviceMappings")):
                fix = 'blockDeviceMappings: its devices, each with ebs.encrypted: "true"'
                yield violation(item, "its disks are as the image says", fix=fix)
            for device in devices:
                if fields.get(device, "ebs") is not None and not fields.is_on(fields.get(device, "ebs", "encrypted")):
                    name = fields.text(device, "deviceName")
                    yield violation(item, f"{name} is not encrypted", fix=f'ebs.encrypted: "true" for {name}')
        for item in context.all(types.EBS_VOLUME):
            if not fields.is_on(fields.get(item.inputs, "encrypted")):
                yield violation(item, "it is not encrypted", fix="encrypted: true")
        for item in context.all(types.STORAGE_CLASS):
            ebs = fields.text(item.inputs, "provisioner") == "ebs.csi.aws.com"
            if ebs and not fields.is_on(fields.get(item.inputs, "parameters", "encrypted")):
                yield violation(item, "its volumes are not encrypted", fix='parameters.encrypted: "true"')


class NoSsh(Rule):
    id = "PAD011"
    severity: ClassVar[Severity] = "error"
    title = "No SSH to nodes: Session Manager only"
    why = "A key pair is a credential without owner, end or log; Session Manager has all three."
    fix = "remove keyName, remoteAccess and rules for port 22; use aws ssm start-session"
    equivalents = ("CKV_AWS_100", "CKV_AWS_24", "AWS-0107")

    def check(self, context: Context) -> Iterator[Violation]:
        places = (
            (types.LAUNCH_TEMPLATE, "keyName"),
            (types.INSTANCE, "keyName"),
            (types.NODE_GROUP, "remoteAccess"),
            (types.INFRASTRUCTURE_CONFIGURATION, "keyPair"),
        )
        for type_, key in places:
            for item in context.all(type_):
                if fields.is_set(fields.get(item.inputs, key)):
                    fix = f"remove {key}; aws ssm start-session opens a shell"
                    yield violation(item, f"{key} lets somebody in over SSH", fix=fix)
        for item in context.all(types.KEY_PAIR):
            fix = "remove it; aws ssm start-session opens a shell"
            yield violation(item, "a key pair is for SSH, which nothing here uses", fix=fix)
        for where, direction, rule in rules(context):
            if direction == "ingress" and has_port(rule, SSH):
                yield violation(where, "port 22 is open", fix="remove the rule, or port 22 from its range")


class ImagesPinned(Rule):
    id = "PAD025"
    severity: ClassVar[Severity] = "error"
    title = "Machine images come from a named owner, are pinned, encrypted and not shared with everybody"
    why = "A search by name alone returns whatever image a stranger published under it last."
    fix = "pools.<name>.ami: a release, a Bottlerocket version or an AMI id; owners for every look-up"
    equivalents = ("CKV_AWS_386", "AWS-0344", "CKV_AWS_204", "CKV_AWS_205", "CKV_AWS_235")

    def check(self, context: Context) -> Iterator[Violation]:
        for token, arguments in context.graph.lookups:
            if token.startswith(("aws:ec2/getAmi:", "aws:ec2/getAmiIds:")):
                owners = fields.items(arguments, "owners")
                if not owners or "*" in owners:
                    subject, fix = token.rpartition(":")[2], "owners: the account that publishes the image"
                    yield Violation(subject, "an image is looked up without naming its owner", fix=fix)
        for group in context.all(types.NODE_GROUP):
            if not fields.is_set(fields.get(group.inputs, "releaseVersion")) and not self._own_image(context, group):
                fix = "pools.<name>.ami: {release: ...}, one that the catalog has"
                yield violation(group, "no release is given, so nodes boot whatever is newest on the day", fix=fix)
        for recipe in context.all(types.IMAGE_RECIPE):
            parent = fields.text(recipe.inputs, "parentImage")
            if parent and not re.match(r"(ssm:/aws/service/|ami-[0-9a-f]+$|arn:aws[a-z-]*:imagebuilder:)", parent):
                fix = "parentImage: the id of an AMI, or ssm:/aws/service/..."
                yield violation(recipe, f"{parent} names neither an image nor a parameter of AWS", fix=fix)
        for distribution in context.all(types.DISTRIBUTION_CONFIGURATION):
            for distribution_entry in fields.items(distribution.inputs, "distributions"):
                settings = fields.get(distribution_entry, "amiDistributionConfiguration")
                if settings is not None and not fields.is_set(fields.get(settings, "kmsKeyId")):
                    fix = "amiDistributionConfiguration.kmsKeyId: a key"
                    yield violation(distribution, "images are not encrypted with a key of ours", fix=fix)
                if "all" in fields.items(settings, "launchPermission", "userGroups"):
                    fix = "launchPermission: userIds in place of userGroups"
                    yield violation(distribution, "everybody may launch the images", fix=fix)
        for item in context.all(types.AMI_COPY):
            if not fields.is_on(fields.get(item.inputs, "encrypted")):
                yield violation(item, "the copy is not encrypted", fix="encrypted: true")
        for item in context.all(types.AMI_LAUNCH_PERMISSION):
            if fields.text(item.inputs, "group") == "all":
                yield violation(item, "everybody may launch the image", fix="accountId in place of group")

    @staticmethod
    def _own_image(context: Context, group: Resource) -> bool:
        """Return whether the group's launch template names an image."""
        used = set(group.property_dependencies.get("launchTemplate", ()))
        return any(
            template.urn in used and fields.is_set(fields.get(template.inputs, "imageId"))
            for template in context.all(types.LAUNCH_TEMPLATE)
        )


_SECRETS = re.compile(
    KEYS + r"|(?i:(password|passwd|secret_access_key|api_?key|auth_?token)\s*[=:]\s*['\"]?[^\s'\"$<{]{8,})"
)


def boot_texts(context: Context) -> Iterator[tuple[Resource, str, str]]:
    """Yield the boot scripts of instances as text: (resource, property, text)."""
    for type_, key in (
        (types.LAUNCH_TEMPLATE, "userData"), (types.INSTANCE, "userData"), (types.INSTANCE, "userDataBase64"),
        (types.IMAGE_RECIPE, "userDataBase64"), (types.IMAGE_COMPONENT, "data"),
    ):  # fmt: skip
        for item in context.all(type_):
            if text := fields.decode_user_data(context.read(item, key)):
                yield item, key, text


class NoSecretsAtBoot(Rule):
    id = "PAD026"
    severity: ClassVar[Severity] = "error"
    title = "User data and image recipes hold no secrets"
    why = "User data is readable by every process on the node and by everyone who may describe the template."
    fix = "keep it in Secrets Manager and let the node's role read it"
    equivalents = ("CKV_AWS_46", "AWS-0029")

    def check(self, context: Context) -> Iterator[Violation]:
        for item in context.all(types.LAUNCH_TEMPLATE, types.INSTANCE):
            if isinstance(item.inputs.get("userData"), Secret):
                yield violation(item, "userData holds a value that Pulumi keeps secret; AWS would show it")
        for item, key, text in boot_texts(context):
            if _SECRETS.search(text):
                yield violation(item, f"{key} holds what looks like a credential")


_KUBELET: Mapping[tuple[str, ...], Any] = {
    ("authentication", "anonymous", "enabled"): False,
    ("authentication", "webhook", "enabled"): True,
    ("authorization", "mode"): "Webhook",
    ("readOnlyPort",): 0,
    ("protectKernelDefaults",): True,
    ("rotateCertificates",): True,
    ("serverTLSBootstrap",): True,
    ("makeIPTablesUtilChains",): True,
}
"""What nodeadm sets. Only these values may be written again; left out is best."""
_FLAGS = re.compile(
    r"--anonymous-auth=true|--authorization-mode=AlwaysAllow|--read-only-port=[1-9]|--rotate-certificates=false"
    r"|--protect-kernel-defaults=false"
)


class KubeletDefaults(Rule):
    id = "PAD027"
    severity: ClassVar[Severity] = "error"
    title = "Nothing loosens the kubelet"
    why = "An anonymous or read-only kubelet port hands out pods, logs and exec to anyone who reaches the node."
    fix = "remove the setting from the user data: nodeadm and Bottlerocket set it right"
    equivalents = tuple(f"CIS 3.2.{n}" for n in range(1, 10))

    def check(self, context: Context) -> Iterator[Violation]:
        for item, _key, text in boot_texts(context):
            for config in _kubelet_configs(text):
                for path, expected in _KUBELET.items():
                    value = fields.get(config, *path)
                    if value is not None and value != expected:
                        setting = ".".join(path)
                        fix = f"remove {setting}: nodeadm and Bottlerocket set it right"
                        yield violation(item, f"the kubelet's {setting} is {value}", fix=fix)
            if flag := _FLAGS.search(text):
                yield violation(item, f"the kubelet is started with {flag[0]}", fix=f"take {flag[0]} out")


@cache  # most pools boot with the same text
def _kubelet_configs(text: str) -> tuple[Mapping[str, Any], ...]:
    """Return the kubelet configurations in user data: nodeadm's documents, alone or in a MIME message."""
    configs = []
    parts = email.message_from_string(text, policy=email.policy.default).walk() if "boundary=" in text else ()
    bodies = [body for part in parts if isinstance(body := part.get_payload(), str)] or [text]
    for body in bodies:
        if "kubelet" not in body:
            continue
        try:
            for document in yaml.safe_load_all(body):
                config = fields.get(document, "spec", "kubelet", "config")
                if isinstance(config, Mapping):
                    configs.append(config)
        except yaml.YAMLError:
            continue
    return tuple(configs)


RULES = (
    MetadataTokens(), MetadataHops(), DisksEncrypted(), NoSsh(), ImagesPinned(), NoSecretsAtBoot(), KubeletDefaults()
)  # fmt: skip

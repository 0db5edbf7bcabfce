"""What nodes boot with, and the images they boot."""

from __future__ import annotations

import base64
import email
import email.policy
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import yaml

from paddock.plan.engine.graph import Resource
from paddock.plan.engine.values import Secret
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Hit, Rule, example, hit, resource
from paddock.plan.rules.inputs import access
from paddock.plan.rules.network import INSTANCE, NODE_GROUP, SSH, TEMPLATE, has_port, rules

BUILDER = "aws:imagebuilder/infrastructureConfiguration:InfrastructureConfiguration"
RECIPE = "aws:imagebuilder/imageRecipe:ImageRecipe"
COMPONENT = "aws:imagebuilder/component:Component"
DISTRIBUTION = "aws:imagebuilder/distributionConfiguration:DistributionConfiguration"
STORAGE_CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
VOLUME = "aws:ebs/volume:Volume"


def _metadata(context: Context) -> Iterator[tuple[Resource, Any]]:
    """IMDS settings of everything that starts instances."""
    for made in context.all(TEMPLATE, INSTANCE):
        yield made, access.at(made.inputs, "metadataOptions")
    for made in context.all(BUILDER):
        yield made, access.at(made.inputs, "instanceMetadataOptions")


def _template(**inputs: Any) -> Context:
    return example(resource(TEMPLATE, "gpu", inputs))


class MetadataTokens(Rule):
    id = "PAD-08"
    severity: ClassVar[Severity] = "error"
    title = "Instance metadata answers only with a session token (IMDSv2)"
    why = "With IMDSv1 one request that a job is tricked into sending returns the node's credentials."
    fix = "metadataOptions.httpTokens: required, in a launch template of our own"
    equivalents = ("CKV_AWS_79", "AWS-0028", "AWS-0130")

    def check(self, context: Context) -> Iterator[Hit]:
        for made, options in _metadata(context):
            tokens = access.at(options, "httpTokens")
            if tokens != "required" and not access.unknown(tokens) and access.at(options, "httpEndpoint") != "disabled":
                yield hit(made, f"httpTokens is {tokens or 'not set'}")
        for group in context.all(NODE_GROUP):
            if not access.given(access.at(group.inputs, "launchTemplate")):
                yield hit(group, "without a launch template of ours EKS leaves IMDSv1 on")

    def example_pass(self) -> Context:
        return _template(metadataOptions={"httpTokens": "required"})

    def example_fail(self) -> Context:
        return _template(metadataOptions={"httpTokens": "optional"})


class MetadataHops(Rule):
    id = "PAD-09"
    severity: ClassVar[Severity] = "error"
    title = "Pods cannot reach instance metadata (hop limit 1)"
    why = "At two hops every pod can take the node's role; pods have Pod Identity for what they may do."
    fix = "metadataOptions.httpPutResponseHopLimit: 1"
    equivalents = ("CKV_AWS_341",)

    def check(self, context: Context) -> Iterator[Hit]:
        for made, options in _metadata(context):
            hops = access.at(options, "httpPutResponseHopLimit")
            if hops != 1 and not access.unknown(hops) and access.at(options, "httpEndpoint") != "disabled":
                yield hit(made, f"the hop limit is {hops or 'left to the image'}")

    def example_pass(self) -> Context:
        return _template(metadataOptions={"httpPutResponseHopLimit": 1})

    def example_fail(self) -> Context:
        return _template(metadataOptions={"httpPutResponseHopLimit": 2})


class DisksEncrypted(Rule):
    id = "PAD-10"
    severity: ClassVar[Severity] = "error"
    title = "Every disk is encrypted"
    why = "Checkouts, caches and images stay on a volume after the job; whoever gets a snapshot reads them."
    fix = 'ebs.encrypted: "true" for every block device, encrypted: "true" for storage classes'
    equivalents = ("AWS-0008", "AWS-0131", "CKV_AWS_3", "CKV_AWS_189")

    def check(self, context: Context) -> Iterator[Hit]:
        for made in context.all(TEMPLATE, RECIPE):
            devices = access.each(made.inputs, "blockDeviceMappings")
            if not devices and not access.unknown(access.at(made.inputs, "blockDeviceMappings")):
                yield hit(made, "its disks are as the image says")
            for device in devices:
                if access.at(device, "ebs") is not None and not access.on(access.at(device, "ebs", "encrypted")):
                    yield hit(made, f"{access.text(device, 'deviceName')} is not encrypted")
        for made in context.all(VOLUME):
            if not access.on(access.at(made.inputs, "encrypted")):
                yield hit(made, "it is not encrypted")
        for made in context.all(STORAGE_CLASS):
            ebs = access.text(made.inputs, "provisioner") == "ebs.csi.aws.com"
            if ebs and not access.on(access.at(made.inputs, "parameters", "encrypted")):
                yield hit(made, "its volumes are not encrypted")

    def example_pass(self) -> Context:
        return _template(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"encrypted": "true"}}])

    def example_fail(self) -> Context:
        return _template(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"volumeType": "gp3"}}])


class NoSsh(Rule):
    id = "PAD-11"
    severity: ClassVar[Severity] = "error"
    title = "No SSH to nodes: Session Manager only"
    why = "A key pair is a credential without owner, end or log; Session Manager has all three."
    fix = "take out keyName, remoteAccess and rules for port 22; use aws ssm start-session"
    equivalents = ("CKV_AWS_100", "CKV_AWS_24", "AWS-0107")

    def check(self, context: Context) -> Iterator[Hit]:
        places = ((TEMPLATE, "keyName"), (INSTANCE, "keyName"), (NODE_GROUP, "remoteAccess"), (BUILDER, "keyPair"))
        for type_, key in places:
            for made in context.all(type_):
                if access.given(access.at(made.inputs, key)):
                    yield hit(made, f"{key} lets somebody in over SSH")
        for made in context.all("aws:ec2/keyPair:KeyPair"):
            yield hit(made, "a key pair is for SSH, which nothing here uses")
        for where, direction, rule in rules(context):
            if direction == "ingress" and has_port(rule, SSH):
                yield hit(where, "port 22 is open")

    def example_pass(self) -> Context:
        return _template()

    def example_fail(self) -> Context:
        return _template(keyName="ops")


class ImagesPinned(Rule):
    id = "PAD-25"
    severity: ClassVar[Severity] = "error"
    title = "Machine images come from a named owner, are pinned, encrypted and not shared with everybody"
    why = "A search by name alone returns whatever image a stranger published under it last."
    fix = "pools.<name>.ami: a release, a Bottlerocket version or an AMI id; owners for every look-up"
    equivalents = ("CKV_AWS_386", "AWS-0344", "CKV_AWS_204", "CKV_AWS_205", "CKV_AWS_235")

    def check(self, context: Context) -> Iterator[Hit]:
        for token, arguments in context.graph.lookups:
            if token.startswith(("aws:ec2/getAmi:", "aws:ec2/getAmiIds:")):
                owners = access.each(arguments, "owners")
                if not owners or "*" in owners:
                    yield Hit(token.rpartition(":")[2], "an image is looked up without naming its owner")
        for group in context.all(NODE_GROUP):
            if not access.given(access.at(group.inputs, "releaseVersion")) and not self._own_image(context, group):
                yield hit(group, "no release is given, so nodes boot whatever is newest on the day")
        for recipe in context.all(RECIPE):
            parent = access.text(recipe.inputs, "parentImage")
            if parent and not re.match(r"(ssm:/aws/service/|ami-[0-9a-f]+$|arn:aws[a-z-]*:imagebuilder:)", parent):
                yield hit(recipe, f"{parent} names neither an image nor a parameter of AWS")
        for distribution in context.all(DISTRIBUTION):
            for each in access.each(distribution.inputs, "distributions"):
                settings = access.at(each, "amiDistributionConfiguration")
                if settings is not None and not access.given(access.at(settings, "kmsKeyId")):
                    yield hit(distribution, "images are not encrypted with a key of ours")
                if "all" in access.each(settings, "launchPermission", "userGroups"):
                    yield hit(distribution, "everybody may launch the images")
        for made in context.all("aws:ec2/amiCopy:AmiCopy"):
            if not access.on(access.at(made.inputs, "encrypted")):
                yield hit(made, "the copy is not encrypted")
        for made in context.all("aws:ec2/amiLaunchPermission:AmiLaunchPermission"):
            if access.text(made.inputs, "group") == "all":
                yield hit(made, "everybody may launch the image")

    @staticmethod
    def _own_image(context: Context, group: Resource) -> bool:
        """Whether the group's launch template names an image."""
        used = set(group.property_dependencies.get("launchTemplate", ()))
        return any(
            template.urn in used and access.given(access.at(template.inputs, "imageId"))
            for template in context.all(TEMPLATE)
        )

    def example_pass(self) -> Context:
        return example(resource(NODE_GROUP, "gpu", {"releaseVersion": "1.35.6-20260714"}))

    def example_fail(self) -> Context:
        return example(lookups=(("aws:ec2/getAmi:getAmi", {"mostRecent": True, "owners": []}),))


_SECRETS = re.compile(
    r"\b(AKIA|ASIA)[A-Z0-9]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    r"|(?i:(password|passwd|secret_access_key|api_?key|auth_?token)\s*[=:]\s*['\"]?[^\s'\"$<{]{8,})"
)


def boot_texts(context: Context) -> Iterator[tuple[Resource, str, str]]:
    """What instances are told when they boot, in clear: (resource, property, text)."""
    for type_, key in (
        (TEMPLATE, "userData"), (INSTANCE, "userData"), (INSTANCE, "userDataBase64"), (RECIPE, "userDataBase64"),
        (COMPONENT, "data"),
    ):  # fmt: skip
        for made in context.all(type_):
            if found := access.decoded(context.known(made, key)):
                yield made, key, found


class NoSecretsAtBoot(Rule):
    id = "PAD-26"
    severity: ClassVar[Severity] = "error"
    title = "User data and image recipes hold no secrets"
    why = "User data is readable by every process on the node and by everyone who may describe the template."
    fix = "keep it in Secrets Manager and let the node's role read it"
    equivalents = ("CKV_AWS_46", "AWS-0029")

    def check(self, context: Context) -> Iterator[Hit]:
        for made in context.all(TEMPLATE, INSTANCE):
            if isinstance(made.inputs.get("userData"), Secret):
                yield hit(made, "userData holds a value that Pulumi keeps secret; AWS would show it")
        for made, key, found in boot_texts(context):
            if _SECRETS.search(found):
                yield hit(made, f"{key} holds what looks like a credential")

    def example_pass(self) -> Context:
        return _template(userData=_base64("max-pods = 20"))

    def example_fail(self) -> Context:
        return _template(userData=_base64("export PASSWORD=correct-horse-battery"))


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
    id = "PAD-27"
    severity: ClassVar[Severity] = "error"
    title = "Nothing loosens the kubelet"
    why = "An anonymous or read-only kubelet port hands out pods, logs and exec to anyone who reaches the node."
    fix = "take the setting out of the user data: nodeadm and Bottlerocket set it right"
    equivalents = tuple(f"CIS 3.2.{n}" for n in range(1, 10))

    def check(self, context: Context) -> Iterator[Hit]:
        for made, _key, found in boot_texts(context):
            for config in _kubelet_configs(found):
                for path, wanted in _KUBELET.items():
                    value = access.at(config, *path)
                    if value is not None and value != wanted:
                        yield hit(made, f"the kubelet's {'.'.join(path)} is {value}")
            if flag := _FLAGS.search(found):
                yield hit(made, f"the kubelet is started with {flag[0]}")

    def example_pass(self) -> Context:
        return _template(userData=self._user_data({"maxPods": 20}))

    def example_fail(self) -> Context:
        return _template(userData=self._user_data({"readOnlyPort": 10255}))

    @staticmethod
    def _user_data(config: Mapping[str, Any]) -> str:
        part = yaml.safe_dump({"kind": "NodeConfig", "spec": {"kubelet": {"config": dict(config)}}})
        return _base64(
            'Content-Type: multipart/mixed; boundary="//"\n\n'
            f"--//\nContent-Type: application/node.eks.aws\n\n{part}\n--//--\n"
        )


def _kubelet_configs(text: str) -> Iterator[Mapping[str, Any]]:
    """The kubelet configurations in user data: nodeadm's documents, alone or in a MIME message."""
    parts = email.message_from_string(text, policy=email.policy.default).walk() if "boundary=" in text else ()
    bodies = [body for part in parts if isinstance(body := part.get_payload(), str)] or [text]
    for body in bodies:
        if "kubelet" not in body:
            continue
        try:
            for found in yaml.safe_load_all(body):
                config = access.at(found, "spec", "kubelet", "config")
                if isinstance(config, Mapping):
                    yield config
        except yaml.YAMLError:
            continue


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


RULES = (
    MetadataTokens(), MetadataHops(), DisksEncrypted(), NoSsh(), ImagesPinned(), NoSecretsAtBoot(), KubeletDefaults()
)  # fmt: skip

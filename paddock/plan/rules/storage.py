"""Storage: registries, logs, buckets and queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from paddock.plan import fields
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Resource
from paddock.plan.finding import Edit, Severity, put
from paddock.plan.rules.base import Context, Rule, Violation, violation

BUCKETS = (types.BUCKET, types.BUCKET_V2)
AUDIT_DAYS = 365


class Repositories(Rule):
    id = "PAD015"
    severity: ClassVar[Severity] = "error"
    title = "Image tags never move; images are scanned, encrypted with our key and private"
    why = "A tag that moves makes yesterday's green build and today's two different images with one name."
    fix = "imageTagMutability IMMUTABLE, scanOnPush true, encryptionType KMS with a key"
    equivalents = (
        "CKV_AWS_51", "CKV_AWS_163", "CKV_AWS_136", "CKV_AWS_32", "AWS-0031", "AWS-0030", "AWS-0033", "AWS-0032",
        "CIS 5.1.1",
    )  # fmt: skip

    def check(self, context: Context) -> Iterator[Violation]:
        for item in context.all(types.REPOSITORY):
            mutability = fields.get(item.inputs, "imageTagMutability")
            if mutability != "IMMUTABLE" and not fields.is_unknown(mutability):
                yield violation(item, "its tags can move", fix="imageTagMutability: IMMUTABLE")
            if not fields.is_on(fields.get(item.inputs, "imageScanningConfiguration", "scanOnPush")):
                fix = "imageScanningConfiguration.scanOnPush: true"
                yield violation(item, "images are not scanned when they are pushed", fix=fix)
            encryption = fields.get(item.inputs, "encryptionConfigurations", 0)
            own_key = fields.get(encryption, "encryptionType") == "KMS" and fields.is_set(
                fields.get(encryption, "kmsKey")
            )
            if not own_key and not fields.has_unknown(encryption):
                fix = "encryptionConfigurations: encryptionType KMS, and a kmsKey"
                yield violation(item, "it is not encrypted with a key of ours", fix=fix)
        for item in context.all(types.PUBLIC_REPOSITORY):
            yield violation(item, "everybody can pull from it", fix="a private repository in its place")
        for item in context.all(types.REPOSITORY_POLICY):
            yield from _open_to_all(context, item)


class LogsKept(Rule):
    id = "PAD022"
    severity: ClassVar[Severity] = "warning"
    title = "Logs are kept for a year, and encrypted with a key of ours"
    why = "An intrusion is found after months; without retention logs either vanish too early or cost for ever."
    fix = "cluster.logDays, network.flowLogDays and logs.jobs.days: 365; kmsKeyId on the log group"
    equivalents = ("CKV_AWS_66", "CKV_AWS_338", "CKV_AWS_158", "AWS-0017")

    def check(self, context: Context) -> Iterator[Violation]:
        for item in context.all(types.LOG_GROUP):
            days = context.read(item, "retentionInDays")
            if not isinstance(days, int | float):
                if not fields.is_unknown(days):
                    yield violation(item, "no retention is set, so it grows for ever", fix="retentionInDays: 365")
            elif 0 < days < AUDIT_DAYS:
                edits = self._edits(item) if context.fleet else ()
                fix = "" if edits else "retentionInDays: 365"
                yield violation(item, f"it is kept for {days:g} days", fix=fix, edits=edits)
            if not fields.is_set(fields.get(item.inputs, "kmsKeyId")):
                yield violation(item, "it is not encrypted with a key of ours", fix="kmsKeyId on the log group")

    @staticmethod
    def _edits(item: Resource) -> tuple[Edit, ...]:
        """Return what makes a log of the fleet be kept for a year; nothing for a log that is not the fleet's."""
        if fields.text(item.inputs, "name").startswith("/aws/eks/"):
            return (put("cluster", "logDays", value=AUDIT_DAYS),)
        if fields.text(item.inputs, "name").endswith("/jobs"):
            return (put("logs", "jobs", "days", value=AUDIT_DAYS),)
        return (put("network", "flowLogDays", value=AUDIT_DAYS),) if item.name.endswith("-flow") else ()


class Buckets(Rule):
    id = "PAD023"
    severity: ClassVar[Severity] = "error"
    title = "Buckets are private, versioned, encrypted with our key and logged"
    why = "A state bucket holds every secret of the stack, and the only way back after a bad update."
    fix = "BucketPublicAccessBlock, BucketVersioning, encryption with aws:kms, BucketLogging; no ACL"
    equivalents = (
        "CKV2_AWS_6", "CKV_AWS_18", "CKV_AWS_19", "CKV_AWS_20", "CKV_AWS_21", "CKV_AWS_145",
        *(f"AWS-00{n}" for n in range(86, 95)),
    )  # fmt: skip

    def check(self, context: Context) -> Iterator[Violation]:
        for bucket in context.all(*BUCKETS):
            block = self._companion(context, bucket, "PublicAccessBlock")
            shut = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
            if block is None or not all(fields.is_on(fields.get(block.inputs, key)) for key in shut):
                yield violation(
                    bucket, "public access is not blocked", fix=f"BucketPublicAccessBlock: {', '.join(shut)}"
                )
            versioning = self._companion(context, bucket, "Versioning")
            status = fields.get(versioning.inputs, "versioningConfiguration", "status") if versioning else None
            if status != "Enabled" and not fields.is_unknown(status):
                yield violation(bucket, "it keeps no versions", fix="BucketVersioning with status Enabled")
            encryption = self._companion(context, bucket, "ServerSideEncryptionConfiguration")
            rule = (
                fields.get(encryption.inputs, "rules", 0, "applyServerSideEncryptionByDefault") if encryption else None
            )
            if fields.get(rule, "sseAlgorithm") not in ("aws:kms", "aws:kms:dsse") and not fields.is_unknown(rule):
                fix = "BucketServerSideEncryptionConfiguration with sseAlgorithm aws:kms"
                yield violation(bucket, "it is not encrypted with a key of ours", fix=fix)
            if self._companion(context, bucket, "Logging") is None:
                yield violation(bucket, "access to it is not logged", fix="BucketLogging with a targetBucket")
            if fields.is_set(fields.get(bucket.inputs, "acl")) or self._companion(context, bucket, "Acl"):
                fix = "remove the ACL: a policy says who may read"
                yield violation(bucket, "an ACL opens it where no policy shows", fix=fix)

    @staticmethod
    def _companion(context: Context, bucket: Resource, part: str) -> Resource | None:
        """Return the resource that sets one thing about a bucket, in either generation of the API."""
        for name in (f"Bucket{part}", f"Bucket{part}V2"):
            type_ = f"aws:s3/{name[0].lower()}{name[1:]}:{name}"
            for companion in context.refer(type_, "bucket", bucket):
                return companion
        return None


class Queues(Rule):
    id = "PAD024"
    severity: ClassVar[Severity] = "error"
    title = "Queues and topics are encrypted, and their policies name who may use them"
    why = "Anyone who can write to the queue of spot interruptions can drain every node."
    fix = "sqsManagedSseEnabled or kmsMasterKeyId; Principal with a service and a Condition on its source"
    equivalents = ("CKV_AWS_27", "CKV_AWS_168", "CKV_AWS_26", "AWS-0096", "AWS-0135", "AWS-0095")

    def check(self, context: Context) -> Iterator[Violation]:
        for item in context.all(types.QUEUE):
            key = fields.is_set(fields.get(item.inputs, "kmsMasterKeyId"))
            if not key and not fields.is_on(fields.get(item.inputs, "sqsManagedSseEnabled")):
                yield violation(item, "messages are not encrypted", fix="sqsManagedSseEnabled: true, or kmsMasterKeyId")
            yield from _open_to_all(context, item)
        for item in context.all(types.TOPIC):
            if not fields.is_set(fields.get(item.inputs, "kmsMasterKeyId")):
                yield violation(item, "messages are not encrypted", fix="kmsMasterKeyId: a key")
            yield from _open_to_all(context, item)
        for item in context.all(types.QUEUE_POLICY, types.TOPIC_POLICY):
            yield from _open_to_all(context, item)


def _open_to_all(context: Context, item: Resource) -> Iterator[Violation]:
    for statement in fields.allow_statements(context.read(item, "policy")):
        if any(who == "*" for _kind, who in fields.principals(statement)) and not statement.get("Condition"):
            fix = "a service or a role in Principal, or a Condition on the source"
            yield violation(item, "its policy lets everybody in", fix=fix)


RULES = (Repositories(), LogsKept(), Buckets(), Queues())

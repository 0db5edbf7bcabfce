"""The credential with which runners register. It is never in the model, only in Pulumi's secrets or AWS's."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from paddock.fleet import GitHub


def credential(github: GitHub, parent: pulumi.Resource) -> dict[str, pulumi.Input[str]]:
    """The keys that ARC's chart looks for in its secret."""
    value = _value(github.secret_source, "githubAppKey" if github.app else "githubToken", parent)
    if github.app is None:
        return {"github_token": value}
    return {
        "github_app_id": github.app.id,
        "github_app_installation_id": github.app.installation,
        "github_app_private_key": value,
    }


def _value(source: str, key: str, parent: pulumi.Resource) -> pulumi.Output[str]:
    if source.startswith("arn:"):
        secret = aws.secretsmanager.get_secret_version_output(
            secret_id=source, opts=pulumi.InvokeOutputOptions(parent=parent)
        )
        return pulumi.Output.secret(secret.apply(lambda version: version.secret_string))
    value = pulumi.Config("paddock").get_secret(key)
    if value is None:
        raise pulumi.RunError(f"paddock:{key} is not set\n    fix: pulumi config set --secret paddock:{key}")
    return value

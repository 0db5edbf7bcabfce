"""The credential with which runners register. It is never in the model, only in Pulumi's secrets or AWS's."""

from __future__ import annotations

import pulumi

from infra.component import Component
from paddock.fleet import GitHub


def credential(github: GitHub, owner: Component) -> dict[str, pulumi.Input[str]]:
    """The keys that ARC's chart looks for in its secret."""
    value = owner.secret(github.secret_source, "githubAppKey" if github.app else "githubToken")
    if github.app is None:
        return {"github_token": value}
    return {
        "github_app_id": github.app.id,
        "github_app_installation_id": github.app.installation,
        "github_app_private_key": value,
    }

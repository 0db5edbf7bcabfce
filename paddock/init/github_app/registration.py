"""Registration of a GitHub App with what Actions Runner Controller needs and nothing more.

GitHub fills its form in from the address: "Registering a GitHub App using URL parameters", and the same as a document:
"Registering a GitHub App from a manifest" (docs.github.com/en/apps/sharing-github-apps, 2026-11-23).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

from paddock.fleet import GitHub

_LONGEST_NAME = 34
"""Characters of an App's name, which nobody else on GitHub may have."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One permission of the App."""

    key: str
    """GitHub's name in addresses and manifests."""
    access: Literal["read", "write"]
    section: str
    title: str
    """Section and title of the form."""
    why: str

    @property
    def words(self) -> str:
        return "read and write" if self.access == "write" else "read-only"


_METADATA = Permission(
    "metadata", "read", "Repository", "Metadata", "GitHub demands it of every App that is installed on repositories"
)
ACTIONS = Permission(
    "actions", "write", "Repository", "Actions",
    "lets `why` look at jobs, `verify --canary` start a workflow, and `runners.rerun` run a job again",
)  # fmt: skip
"""What runners do without, and `why`, `verify --canary` and `runners.rerun` do not."""
_WHY_SETTINGS = (
    "lets `doctor` read policies for forks and settings of Actions. It is broad: it also reads all other settings,"
    " which runners do without"
)
SETTINGS = (
    Permission("organization_administration", "read", "Organization", "Administration", _WHY_SETTINGS),
    Permission("administration", "read", "Repository", "Administration", _WHY_SETTINGS),
)
"""What `doctor` reads with, of an organisation's and its repositories' settings."""
PERMISSIONS = {
    "organisation": (
        Permission(
            "organization_self_hosted_runners", "write", "Organization", "Self-hosted runners",
            "registers scale sets and runners, and removes them",
        ),
        _METADATA,
    ),
    "repository": (
        Permission(
            "administration", "write", "Repository", "Administration",
            "registers scale sets and runners of a repository, for which GitHub has no smaller permission: with it the"
            " App may also change the repository's settings",
        ),
        _METADATA,
    ),
}  # fmt: skip
"""By scope, as in "Authenticating ARC to the GitHub API" (docs.github.com, 2026-11-23)."""


@dataclass(frozen=True, slots=True)
class Registration:
    """An App for the runners of one organisation or repository."""

    github: GitHub
    operate: bool = False
    """Whether the App also looks at jobs, and starts them."""
    doctor: bool = False
    """Whether the App also reads settings, which its right to register runners of a repository holds already."""

    @property
    def owner(self) -> str:
        return urlsplit(self.github.url).path.strip("/").split("/")[0]

    @property
    def name(self) -> str:
        return f"paddock-{self.owner}"[:_LONGEST_NAME].rstrip("-")

    @property
    def permissions(self) -> tuple[Permission, ...]:
        needed = PERMISSIONS["repository" if self.github.scope == "repository" else "organisation"]
        settings = SETTINGS if self.doctor and self.github.scope != "repository" else ()
        return (*needed, *settings, *((ACTIONS,) if self.operate else ()))

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses of the filled-in form. A repository's address does not say whose it is: there are two."""
        site = f"https://{self.github.host}"
        query = urlencode(
            {
                "name": self.name,
                "url": self.github.url,
                "public": "false",
                "webhook_active": "false",
                **{permission.key: permission.access for permission in self.permissions},
            }
        )
        organisation = {"organisation": f"{site}/organizations/{self.owner}/settings/apps/new?{query}"}
        if self.github.scope == "organisation":
            return organisation
        return organisation | {"person": f"{site}/settings/apps/new?{query}"}

    @property
    def installations(self) -> dict[str, str]:
        """Pages that lead to an installation, whose address ends with its id."""
        site = f"https://{self.github.host}"
        organisation = {"organisation": f"{site}/organizations/{self.owner}/settings/installations"}
        if self.github.scope == "organisation":
            return organisation
        return organisation | {"person": f"{site}/settings/installations"}

    def manifest(self) -> dict[str, Any]:
        """Return the registration as a document, for those who register Apps by program."""
        return {
            "name": self.name,
            "url": self.github.url,
            "hook_attributes": {"url": self.github.url, "active": False},
            "public": False,
            "default_events": [],
            "default_permissions": {permission.key: permission.access for permission in self.permissions},
        }

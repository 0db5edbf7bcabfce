"""Names of the labels of Paddock's images, written by the build and read by the checks."""

from __future__ import annotations

_OCI = "org.opencontainers.image"
TITLE = f"{_OCI}.title"
VERSION = f"{_OCI}.version"
CREATED = f"{_OCI}.created"
REVISION = f"{_OCI}.revision"
SOURCE = f"{_OCI}.source"
BASE_NAME = f"{_OCI}.base.name"
BASE_DIGEST = f"{_OCI}.base.digest"

CONTENT = "dev.paddock.content"
"""The hash of what it was built of; an image that bears this is ours."""
CUDA = "dev.paddock.cuda"
PACKAGES = "dev.paddock.packages"
"""The day that its packages are of, or later; empty where the image has no such argument."""
RUNNER = "dev.paddock.runner"
"""The version of actions/runner in it."""

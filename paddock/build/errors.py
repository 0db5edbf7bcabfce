"""What a user is told when an image cannot be built, pushed or pinned."""

from __future__ import annotations


class BuildError(Exception):
    """A build, a registry or AWS failed; the message says what and how to go on."""

    exit_code = 1


class BuildInputError(BuildError):
    """The request, a file or the machine is not what it must be; nothing was changed."""

    exit_code = 2

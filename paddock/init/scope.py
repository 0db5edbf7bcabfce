"""Address of the organisation or repository that runners register with, as a person writes it."""

from __future__ import annotations

import re

from pydantic import ValidationError

from paddock import validation
from paddock.console.output import BadFlag
from paddock.fleet import GitHub

_EXPECTED = "https://github.com/ORG or https://github.com/OWNER/REPOSITORY"
_SHORT = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)


def github(text: str, flag: str = "--url") -> GitHub:
    """Return the place where runners register; `acme` and `acme/project` are of github.com. Raises BadFlag.

    `flag` is where the user wrote it, for messages.
    """
    written = text.removesuffix("/").removesuffix(".git")
    short = _SHORT.fullmatch(written) and "." not in written.partition("/")[0]
    url = f"https://github.com/{written}" if short else written
    try:
        # The credential is not part of the question, and an enterprise may only have a token.
        result = GitHub.model_validate({"url": url, "token": "config", "serverVersion": "3.0"})
    except ValidationError as error:
        problem = validation.problems(error.errors(include_url=False), GitHub)[0]
        raise BadFlag(f"{flag}: {problem.message}\n    expected: {_EXPECTED}") from None
    if result.scope == "enterprise":
        raise BadFlag(
            f"{flag}: {url}: GitHub lets no App register runners of an enterprise\n"
            f"    expected: {_EXPECTED}\n"
            "    fix: name one with --url; a stack for an enterprise has a token: docs/configuration.md#github"
        )
    return result

"""Address of the organisation or repository that runners register with, as a person writes it."""

from __future__ import annotations

import re

from pydantic import ValidationError

from paddock import validation
from paddock.fleet import GitHub
from paddock.terminal import BadFlag

FLAG = "--url"
_SHORT = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)


def github(text: str) -> GitHub:
    """Return where runners register; `acme` and `acme/project` are of github.com. Raises BadFlag."""
    short = _SHORT.fullmatch(text) and "." not in text.partition("/")[0]
    url = f"https://github.com/{text}" if short else text.removesuffix("/").removesuffix(".git")
    try:
        # The credential is not part of the question, and an enterprise may only have a token.
        result = GitHub.model_validate({"url": url, "token": "config", "serverVersion": "3.0"})
    except ValidationError as error:
        problem = validation.problems(error.errors(include_url=False), GitHub)[0]
        raise BadFlag(f"{FLAG}: {problem.message}\n    expected: {problem.expected}") from None
    if result.scope == "enterprise":
        raise BadFlag(
            f"{FLAG} {url}: GitHub lets no App register runners of an enterprise\n"
            "    expected: an organisation or a repository, such as https://github.com/ORG\n"
            "    fix: name one; a stack for an enterprise has a token: docs/configuration.md#github"
        )
    return result

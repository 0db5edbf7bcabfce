"""Options that several build commands share."""

from __future__ import annotations

from paddock.build.docker import Progress
from paddock.build.errors import BuildInputError


def progress_of(text: str, as_json: bool) -> Progress:
    """Return how a build shows its steps; beside JSON it shows none. Raises BuildInputError."""
    match text:
        case "auto" | "plain" | "quiet":
            return "quiet" if as_json else text
        case _:
            raise BuildInputError(
                f"--progress {text} is not known\n    expected: auto, plain or quiet\n    fix: leave it out"
            )

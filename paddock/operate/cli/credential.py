"""A credential for GitHub in a file, so that it stands on no command line."""

from __future__ import annotations

from pathlib import Path

from paddock.terminal import BadFlag

_LARGEST_KEY = 64 * 1024


def credential(path: Path) -> str:
    """Return the credential in a file. Raises BadFlag, whose text never holds any of it."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_KEY).decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    except OSError as error:
        raise BadFlag(
            f"--github-key {path}: {error.strerror}\n    expected: a file with the App's private key, or a token"
            "\n    fix: the file that GitHub downloaded, which ./inv github.app --key FILE looks at"
        ) from None
    if not text:
        raise BadFlag(
            f"--github-key {path}: it holds no text\n    expected: a file with the App's private key, or a token"
            "\n    fix: the file that GitHub downloaded, which ./inv github.app --key FILE looks at"
        )
    return text

"""A credential for GitHub in a file, which is never on a command line."""

from __future__ import annotations

from pathlib import Path

from paddock.console.output import BadFlag
from paddock.fleet import GitHub
from paddock.fleet.model.images import print_ids
from paddock.operate.sources.github import installation_reader, repository
from paddock.operate.sources.unavailable import Unavailable

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
            "\n    fix: the file that GitHub downloaded, which ./inv init.github --key FILE checks"
        ) from None
    if not text:
        raise BadFlag(
            f"--github-key {path}: it is empty or not text\n    expected: a file with the App's private key, or a token"
            "\n    fix: the file that GitHub downloaded, which ./inv init.github --key FILE checks"
        )
    return text


def read_ids(github: GitHub, key: Path, names: str) -> str:
    """Return a repository with its ids, read with the credential in a file. Raises BadFlag."""
    secret = credential(key)
    if "PRIVATE KEY" in secret and github.app is None:
        raise BadFlag(
            f"--github-key {key}: it is the key of an App that is not named\n"
            "    expected: --app-id and --installation\n    fix: give both; or a file with a token"
        )
    try:
        return repository(installation_reader(github, secret), names).with_ids
    except Unavailable as error:
        raise BadFlag(
            f"--push {names}: its ids cannot be read: {error}\n"
            "    expected: a repository that the App is installed in\n"
            f"    fix: --push with the ids, which {print_ids(names, github.host)} prints; or leave --github-key out"
        ) from None

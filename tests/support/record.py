"""What passed in the last run, so that a run with real engines need not do it a second time."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

KEY = "paddock/passed"


def passed_before(config: pytest.Config) -> set[str]:
    """Return the tests that passed in the last run; none where a file has changed since."""
    cache = _cache(config)
    record = cache.get(KEY, None) if cache else None
    state = state_of_files(config.rootpath) if record else None
    return set(record["tests"]) if state and record["files"] == state else set()


def keep(config: pytest.Config, tests: Iterable[str]) -> None:
    """Write down which tests passed, beside the state of the files."""
    if (cache := _cache(config)) and (passed := sorted(tests)):
        cache.set(KEY, {"files": state_of_files(config.rootpath), "tests": passed})


def _cache(config: pytest.Config) -> pytest.Cache | None:
    """Return pytest's cache; None where that is switched off."""
    return getattr(config, "cache", None)


def names(item: pytest.Item) -> set[str]:
    """Return the names that reports give a test: xdist adds the group."""
    groups = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
    return {item.nodeid, f"{item.nodeid}@{'_'.join(groups)}"}


def state_of_files(root: Path) -> str | None:
    """Return a digest of the files that git knows, as they are now; None without git."""
    digest = hashlib.sha256()
    for command in (["rev-parse", "HEAD^{tree}"], ["diff", "--binary", "HEAD"]):
        try:
            done = subprocess.run(["git", "-C", str(root), *command], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        digest.update(done.stdout)
    return digest.hexdigest()

"""API keys of clients, from a file or the environment. Only their sums are kept, and no message names one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from paddock.serve.errors import ServeInputError

VARIABLE = "PADDOCK_SERVE_KEYS"
"""Names keys in the environment, apart by white space; a file comes before it."""
_LETTERS = 16


def api_keys(file: Path | None, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the keys of a file, else those of the environment, else none. Raises ServeInputError."""
    if file is None:
        text = environ.get(VARIABLE)
        if text is None:
            return []
        keys, place = text.split(), VARIABLE
    else:
        place = str(file)
        try:
            keys = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise ServeInputError(f"{place}: cannot be read: {error}\n    expected: API keys, a line each") from None
    if not keys or min(map(len, keys)) < _LETTERS:
        raise ServeInputError(
            f"{place}: no API keys\n    expected: keys of at least {_LETTERS} characters, a line each"
        )
    return keys


def sums(keys: Iterable[str]) -> frozenset[str]:
    """Return the keys' SHA-256 sums, which is what the gateway keeps."""
    return frozenset(hashlib.sha256(key.encode()).hexdigest() for key in keys)

"""API keys of clients, and where they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.serve.admission.keys import api_keys, sums
from paddock.serve.errors import ServeInputError

KEY, OTHER = "0123456789abcdef", "a-key-of-enough-letters"


def test_a_key_file_without_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for text in ("", "\n", f"{KEY}\nshort\n"):
        path.write_text(text)
        with pytest.raises(ServeInputError, match="no API keys") as error:
            api_keys(path)
        assert KEY not in str(error.value)
    with pytest.raises(ServeInputError, match="cannot be read"):
        api_keys(tmp_path / "absent")


def test_a_file_of_keys_comes_before_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{KEY}\n\n")
    environ = {"PADDOCK_SERVE_KEYS": f"{OTHER} {KEY}"}
    assert api_keys(path, environ) == [KEY]
    assert api_keys(None, environ) == [OTHER, KEY]
    assert api_keys(None, {}) == []
    with pytest.raises(ServeInputError, match="PADDOCK_SERVE_KEYS: no API keys"):
        api_keys(None, {"PADDOCK_SERVE_KEYS": ""})


def test_sums_of_keys_show_no_key() -> None:
    assert not any(KEY in sum_ for sum_ in sums([KEY, OTHER]))
    assert len(sums([KEY, OTHER, KEY])) == 2

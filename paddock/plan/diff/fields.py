"""Differences between two values of a resource's input, inside JSON, YAML, MIME and base64 too.

Everything that comes out is text for people: short, in one piece, and without a secret.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email import message_from_string
from email.errors import MessageError
from typing import Any

import yaml

from paddock.errors import UNPRINTABLE
from paddock.fleet.model.github import GITHUB_TOKEN
from paddock.plan.diff.model import FieldChange
from paddock.plan.engine.values import SECRET, shallow

LONGEST = 120
"""Characters of a value that are shown."""
LINES = 12
"""Lines of a text that are shown."""
_LARGEST = 100_000
"""Characters of a text that is still looked into."""
_DEEPEST = 60
_NESTED = 4
"""Documents within documents: base64 that holds MIME that holds YAML."""

_IDENTITY = ("name", "key", "Sid", "deviceName", "resourceType", "id")
"""Keys that identify the items of a list, so that one more does not change all that follow."""
_SENSITIVE = re.compile(
    r"(password|passwd|passphrase|token|credentials?|api_?key|access_?key|private_?key|client_?secret)$", re.I
)
_TOKENS = re.compile(
    GITHUB_TOKEN + r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bxox[abprs]-[\w-]{8,}|\bey[\w-]{16,}\.[\w-]{8,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)",
    re.S,
)
_ASSIGNED = re.compile(
    r"((?:password|passwd|passphrase|token|secret|api_?key|access_?key|private_?key)[\"']?(?:\s*=\s*|:\s+|:(?=[\"']))[\"']?)"
    r"[^\s\"',;]{4,}",
    re.I,
)
_ANCHOR = re.compile(r"(?:^|[\s\[{,:-])[&*]\w", re.M)


def compare(old: Mapping[str, Any], new: Mapping[str, Any], secret: Sequence[str] = ()) -> tuple[FieldChange, ...]:
    """Return every difference of two sets of inputs. Values below the names in `secret` are never shown."""
    changes: list[FieldChange] = []
    for key in sorted({*old, *new}):
        hidden = key in secret or bool(_SENSITIVE.search(key))
        changes += _walk(_Place((key,), _key(key), hidden=hidden), old.get(key, _ABSENT), new.get(key, _ABSENT))
    return tuple(changes)


def clean(text: str) -> str:
    """Text from a document as it may be shown: no credential, no escape code, nothing that cannot be encoded."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    text = UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))
    return _ASSIGNED.sub(rf"\1{SECRET}", _TOKENS.sub(SECRET, text))


def short(value: Any) -> str:
    """Return a value on one line, cut where it is long."""
    return _cut(clean(_text(_redacted(value))))


class _Absent:
    pass


_ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class _Place:
    keys: tuple[str, ...]
    path: str
    hidden: bool = False
    documents: int = 0
    exact: bool = True
    """Whether `keys` still grows: it stops at a list's item and at a document."""

    def below(self, key: str, *, item: bool = False) -> _Place:
        hidden = self.hidden or bool(_SENSITIVE.search(key))
        path = f"{self.path}[{clean(key)}]" if item else f"{self.path}.{_key(key)}"
        exact = self.exact and not item
        return _Place((*self.keys, key) if exact else self.keys, path, hidden, self.documents, exact)

    def inside(self, form: str) -> _Place:
        return _Place(self.keys, f"{self.path}({form})", self.hidden, self.documents + 1, exact=False)


def _walk(place: _Place, old: Any, new: Any) -> Iterator[FieldChange]:
    if _text(old) == _text(new):
        return
    if (SECRET in (old, new) or place.hidden) and not (_plain(old) and _plain(new)):
        yield FieldChange(place.path, _secret(old), _secret(new), place.keys)
        return
    match _opened(old, new), _opened(new, old):
        case [dict() as before, dict() as after]:
            for key in sorted({*before, *after}, key=str):
                yield from _walk(place.below(str(key)), before.get(key, _ABSENT), after.get(key, _ABSENT))
        case [list() as before, list() as after] if (named := _named(before, after)) is not None:
            for key in named[0] | named[1]:
                yield from _walk(place.below(key, item=True), named[0].get(key, _ABSENT), named[1].get(key, _ABSENT))
        case [list() as before, list() as after] if len(before) == len(after) and not _scalars(before + after):
            for index, (was, becomes) in enumerate(zip(before, after, strict=True)):
                yield from _walk(place.below(str(index), item=True), was, becomes)
        case [list() as before, list() as after] if len(_text(before + after)) > LONGEST:
            yield _items(place, before, after)
        case [str() as before, str() as after]:
            yield from _texts(place, before, after)
        case _:
            yield _leaf(place, old, new)


def _plain(value: Any) -> bool:
    """Return whether a value holds no secret even under such a name: `automountServiceAccountToken: false`."""
    return value is None or isinstance(value, bool | int | float | _Absent) or value == ""


def _secret(value: Any) -> str | None:
    return None if isinstance(value, _Absent) else SECRET


def _redacted(value: Any) -> Any:
    """Return a value that is shown whole, without what its own names say is secret."""
    match value:
        case dict():
            named = next((value[key] for key in ("name", "key") if isinstance(value.get(key), str)), "")
            return {
                key: SECRET
                if (_SENSITIVE.search(str(key)) or (key == "value" and _SENSITIVE.search(named))) and not _plain(item)
                else _redacted(item)
                for key, item in value.items()
            }
        case list():
            return [_redacted(item) for item in value]
        case _:
            return value


def _opened(value: Any, other: Any) -> Any:
    """Return an empty dict for the absent counterpart of a dict, so that its leaves are compared."""
    return {} if isinstance(value, _Absent) and isinstance(other, dict) and other else value


def _named(old: list[Any], new: list[Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the items of two lists by the key that names them, or None where nothing does."""
    items = [*old, *new]
    if not items or not all(isinstance(item, dict) for item in items):
        return None
    for key in _IDENTITY:
        if not all(isinstance(item.get(key), str) and item[key] for item in items):
            continue
        before, after = ({item[key]: item for item in items_} for items_ in (old, new))
        if len(before) == len(old) and len(after) == len(new):
            return before, after
    return None


def _items(place: _Place, old: list[Any], new: list[Any]) -> FieldChange:
    """Return the items of one list that the other lacks; the whole lists where only their order differs."""

    def beyond(items: list[Any], baseline: list[Any]) -> list[Any]:
        unmatched = Counter(map(_text, baseline))
        extra = []
        for item in items:
            if unmatched[_text(item)]:
                unmatched[_text(item)] -= 1
            else:
                extra.append(item)
        return extra

    removed, added = beyond(old, new), beyond(new, old)
    if len(removed) == len(old) or len(added) == len(new) or not (removed or added):
        return _leaf(place, old, new)
    within = _Place(place.keys, f"{place.path}[]")
    return _leaf(within, removed or _ABSENT, added or _ABSENT)


def _scalars(items: list[Any]) -> bool:
    return not any(isinstance(item, dict | list) for item in items)


def _texts(place: _Place, old: str, new: str) -> Iterator[FieldChange]:
    """Two texts: as the documents they hold, else line by line, else as they are."""
    if place.documents < _NESTED and max(len(old), len(new)) <= _LARGEST:
        before, after = _document(old), _document(new)
        if before and after and before[0] == after[0]:
            changes = list(_walk(place.inside(before[0]), before[1], after[1]))
            # A field that takes a JSON document reads it; further in, its text may be what counts.
            if changes or (before[0] == "json" and len(place.keys) == 1 and place.exact and not place.documents):
                yield from changes
                return
    if "\n" not in old and "\n" not in new:
        yield _leaf(place, old, new)
        return
    yield _lines(place, clean(old).splitlines(), clean(new).splitlines())


def _lines(place: _Place, old: list[str], new: list[str]) -> FieldChange:
    if max(len(old), len(new)) > 5_000:
        return _leaf(place, "\n".join(old), "\n".join(new))
    before, after = [], []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if tag != "equal":
            before += old[a:b]
            after += new[c:d]
    return FieldChange(place.path, _few(before), _few(after), place.keys)


def _few(lines: list[str]) -> str | None:
    """Return the first of some lines; None where there are none."""
    first = [_cut(line) for line in lines[:LINES]]
    more = [f"… {len(lines) - LINES} more lines"] if len(lines) > LINES else []
    return "\n".join(first + more) if lines else None


def _leaf(place: _Place, old: Any, new: Any) -> FieldChange:
    before, after = (None if isinstance(value, _Absent) else clean(_text(_redacted(value))) for value in (old, new))
    if before is not None and after is not None:
        before, after = _window(before, after)
    return FieldChange(place.path, before and _cut(before), after and _cut(after), place.keys)


def _window(old: str, new: str) -> tuple[str, str]:
    """Long texts from shortly before where they part, else both would be cut to the same beginning."""
    if max(len(old), len(new)) <= LONGEST:
        return old, new
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, same - 20)
    return (f"…{old[start:]}", f"…{new[start:]}") if start else (old, new)


def _cut(text: str) -> str:
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, _Absent):
        return "\0absent"
    return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)


def _key(key: str) -> str:
    return clean(key) if re.fullmatch(r"[\w-]+", key) else json.dumps(clean(key), ensure_ascii=False)


def _document(text: str) -> tuple[str, Any] | None:
    """Return the document in a text and its format; None for plain text."""
    decoded = decode_base64(text)
    if decoded is not None:
        held = _document(decoded)
        return held or ("base64", decoded)
    for form, read in (("json", _json), ("mime", _mime), ("toml", _toml), ("yaml", _yaml)):
        value = read(text)
        if isinstance(value, dict | list) and value and shallow(value, _DEEPEST):
            return form, value
    return None


def decode_base64(text: str) -> str | None:
    """Return the text of several lines that is in base64: user data. Shorter ones are as likely a word."""
    if len(text) < 24 or len(text) % 4 or not re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", text):
        return None
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return decoded if "\n" in decoded else None


def _json(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _mime(text: str) -> Any:
    """Parts of a MIME document by their kind, as user data has them."""
    if not text.startswith("MIME-Version:"):
        return None
    try:
        message = message_from_string(text)
        parts = [part for part in message.walk() if not part.is_multipart()]
        bodies = [(part.get_content_type(), str(part.get_payload())) for part in parts]
    except (MessageError, ValueError, LookupError, RecursionError):
        return None
    body_by_kind: dict[str, Any] = {}
    for kind, body in bodies:
        same = sum(name.startswith(kind) for name in body_by_kind)
        body_by_kind[f"{kind} {same + 1}" if same else kind] = body
    return body_by_kind if message.is_multipart() else None


def _toml(text: str) -> Any:
    if "\n" not in text or "=" not in text or not text.lstrip().startswith("["):
        return None
    try:
        return json.loads(json.dumps(tomllib.loads(text), default=str))
    except (ValueError, RecursionError):
        return None


def _yaml(text: str) -> Any:
    """YAML of several lines. Anchors are left alone: a few of them unfold to gigabytes."""
    if "\n" not in text or ":" not in text or text.startswith("#!") or _ANCHOR.search(text):
        return None
    try:
        return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - makes nothing but text, lists and maps
    except (yaml.YAMLError, ValueError, RecursionError):
        return None

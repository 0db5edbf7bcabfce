"""Words that users and readers see are the plain English of the field: phrases to avoid, each with what to write."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

WRITE = {
    r"(?<!there )(?<!where )(?<!why )\b(is|was|are|were) no "
    r"(?!longer|more|less|fewer|earlier|later|other|better|older|newer|larger)": "is not a …",
    r"(?<!there )(?<!where )\b(is|was) (?-i:none)\b": "is not one, there is none, or nothing",
    r"\bthere is no such\b": "no such …, or … does not exist",
    r"\bmakes? no sense\b": "is not valid",
    r"\banew\b": "again; or re-: rebuilt, recreated, restarts",
    r"\bstands (in|at|on|under)\b(?! for| the way)": "is in, is written in, depends on",
    r"\bstand (in|under)\b(?! for| the way)": "are in, are written in",
    r"\bwhoever\b": "anyone who, the one who",
    r"\bha(s|ve) gone\b": "is gone",
    r"\bbeside\b": "next to; besides, in addition to; with; compared with",
    r"(?<!security )(?<!system )(?<!`)\bprocessors?\b": "CPU, or architecture",
    r"\bmatrix products?\b": "GEMM",
    r"\b(runs|boots|starts|waits|is being deleted) since\b": "has been running for",
    r"\bnothing speaks against\b": "no problems found",
    r"\bof no use\b": "cannot be used",
    r"\bthe way to the cluster\b": "kubeconfig file",
    r"\bha(s|ve) not (the|a|any)\b": "does not have",
    r"\b(is|are) said\b|\bsaid aloud\b": "is reported, is shown",
    r"\bin clear\b(?! text)": "in clear text",
    r"\bmend(s|ed|ing)?\b": "fix, repair, correct",
    r"\bonce more\b": "again, a second time",
    r"\bgo(es)? on (with|from|where)\b|\bhow to go on\b": "continue",
    r"\bwhat came of\b": "the outcome",
    r"\b(lest|hence)\b": "so that … not; so",
    r"\b(names?|numbers?) of before\b": "old, earlier",
    r"\b(do|does) not suffice\b": "too few are free, is too small",
    r"\bspeaks? CUDA\b": "supports CUDA",
    r"\bgone through\b": "checked, read",
}
"""Pattern -> what to write in its place."""
BOUND = r"\b"
UNREAD = re.compile(r"images/cuda-builder/third_party|\.lock$")
WHERE = (
    "paddock infra policy inv images runners ami docs README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md .github "
    "pyproject.toml"
)


def _prose(file: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield what a person reads of a file, by line: of Python the comments and the strings of several words."""
    if not (file.endswith(".py") or file == "inv"):
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    parts: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts.update(id(value) for value in node.values)
            words = "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            words = node.value
        else:
            continue
        if " " in words:
            yield from enumerate(words.splitlines(), node.lineno)


def test_no_phrase_that_the_field_does_not_use(root: Path) -> None:
    if not (root / ".git").exists():
        pytest.skip("not a git checkout: what is tracked cannot be told from other files")
    listed = subprocess.run(
        ["git", "ls-files", "--", *WHERE.split()], cwd=root, capture_output=True, text=True, check=True
    )
    phrases = {re.compile(pattern, re.I): write for pattern, write in WRITE.items()}
    # In small letters, and from the first letter of a word: seven times as fast.
    either = re.compile(r"\b(?:" + "|".join(f"(?:{pattern.replace(BOUND, '', 1)})" for pattern in WRITE).lower() + ")")
    found = []
    for file in listed.stdout.splitlines():
        if UNREAD.search(file) or not (root / file).is_file():
            continue
        try:
            text = (root / file).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if either.search(text.replace("None", "~").lower()):
            found += [
                f"{file}:{number}: {match[0].strip()}: write {write}"
                for number, line in _prose(file, text)
                for phrase, write in phrases.items()
                if (match := phrase.search(line))
            ]
    assert not found, "\n".join(found)

"""Messages of other programs, as people published them, and the row that explains each."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paddock.messages import explain, rows

SAID = yaml.safe_load(Path(__file__).with_name("said.yaml").read_text(encoding="utf-8"))
CASES = [(row, said, text) for row, by_said in SAID.items() for said, texts in by_said.items() for text in texts]
PLACES = sorted({said for row in rows() for said in row.said})
UNRELATED = [
    "#5 0.412 Get:1 http://archive.ubuntu.com/ubuntu jammy InRelease [270 kB]",
    "Setting up libcudnn9-cuda-12 (9.8.0.87-1) ...",
    "Processing triggers for libc-bin (2.35-0ubuntu3.9) ...",
    "[12/49] nvcc -gencode arch=compute_90,code=sm_90 -c flash_bwd.cu -o flash_bwd.o",
    "warning: function 'denied' was declared but never referenced",
    "-- Looking for pthread_create in pthreads - not found",
    "-- Could NOT find MPI_C (missing: MPI_C_WORKS)",
    "test_killed_process_is_reaped ... ok",
    "test_image_not_found ... ok",
    "test_unauthorized_user ... ok",
    "make: *** [Makefile:12: all] Error 2",
    "ninja: build stopped: subcommand failed.",
    "npm warn deprecated glob@7.2.3: Glob versions prior to v9 are no longer supported",
    "exit code: 1",
    "curl: (7) Failed to connect to x port 443: connection refused",
    "Successfully installed certifi-2026.1.4 urllib3-2.6.3",
    "Extracting x509.go: certificate helpers",
    "WARNING: Running pip as the 'root' user can result in broken permissions",
    "checking whether the disk is full... no",
    "Updating (dev): 12 resources unchanged",
]


@pytest.mark.parametrize(("row", "said", "text"), CASES, ids=[f"{row}-{i}" for i, (row, _, _) in enumerate(CASES)])
def test_a_published_message_is_explained_by_its_row(row: str, said: str, text: str) -> None:
    explained = explain(said, f"#7 1.2 something before\n{text}\nsomething after\n")
    assert explained
    assert explained.row.id == row
    assert explained.line.startswith(text.splitlines()[0][:20]) or explained.line in text
    assert not re.search(r"\{\w+\}", explained.cause + explained.expected + explained.hint)


def test_every_row_has_a_published_message_and_a_source() -> None:
    assert set(SAID) == {row.id for row in rows()}
    for row in rows():
        assert row.source.startswith("https://"), row.id
        assert re.fullmatch(r"2026-\d\d-\d\d", row.as_of), row.id


@given(st.randoms(), st.sampled_from(PLACES))
def test_unrelated_lines_in_any_order_mean_nothing(chance: random.Random, said: str) -> None:
    lines = UNRELATED.copy()
    chance.shuffle(lines)
    assert explain(said, "\n".join(lines)) is None


@given(st.lists(st.sampled_from(["not", "found", "denied", "error", "killed", "full", "unauthorized", "space", "left",
    "signed", "locked", "expired", "exists", "timeout", "memory", "image", "no", "such"]), max_size=12),
    st.sampled_from(PLACES))  # fmt: skip
def test_no_word_of_a_message_is_the_message(words: list[str], said: str) -> None:
    assert explain(said, "\n".join(words)) is None

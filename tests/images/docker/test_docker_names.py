from __future__ import annotations

import pytest

from paddock.image_reference import BadReference, Reference

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "read"),
    {
        "debian": ("docker.io", "debian", "latest", ""),
        "nvidia/cuda:12.8.1-devel": ("docker.io", "nvidia/cuda", "12.8.1-devel", ""),
        "docker.io/library/debian:12": ("docker.io", "debian", "12", ""),
        "library/debian": ("docker.io", "debian", "latest", ""),
        "index.docker.io/nvidia/cuda": ("docker.io", "nvidia/cuda", "latest", ""),
        "localhost/a": ("localhost", "localhost/a", "latest", ""),
        "localhost:5000/a:1": ("localhost:5000", "localhost:5000/a", "1", ""),
        f"1.dkr.ecr.us-west-2.amazonaws.com/a/b@{DIGEST}": (
            "1.dkr.ecr.us-west-2.amazonaws.com",
            "1.dkr.ecr.us-west-2.amazonaws.com/a/b",
            "",
            DIGEST,
        ),
        f"a:1@{DIGEST}": ("docker.io", "a", "", DIGEST),
        "[::1]:5000/a:1": ("[::1]:5000", "[::1]:5000/a", "1", ""),
    }.items(),
)
def test_a_reference_is_read_as_docker_reads_it(text: str, read: tuple[str, str, str, str]) -> None:
    reference = Reference.parse(text)

    assert (reference.registry, reference.name, reference.tag, reference.digest) == read


@pytest.mark.parametrize(
    "text", ["", "A", "a:", "a b", "a//b", "a@sha256:1", "/a", "a?x=1", "a:1:2", "reg.io/A:1", "Acme/a:1"]
)
def test_an_invalid_reference_is_refused(text: str) -> None:
    with pytest.raises(BadReference, match="is not an image reference"):
        Reference.parse(text)

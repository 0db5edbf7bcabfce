"""Real output of docker, registries and tools inside a build, and the messages a user reads instead."""

from __future__ import annotations

import pytest

from paddock.images.docker import problems

REGISTRY = {
    "unreachable": (
        'Get "http://localhost:5986/v2/": dial tcp 127.0.0.1:5986: connect: connection refused',
        "reg.example:5000 cannot be reached: connection refused",
        1,
    ),
    "no such host": (
        'Get "https://nothere.invalid/v2/": dial tcp: lookup nothere.invalid on 10.0.0.2:53: no such host',
        "cannot be reached: no such host",
        1,
    ),
    "broken": (
        "received unexpected HTTP status: 503 Service Unavailable",
        "cannot be reached: 503 Service Unavailable",
        1,
    ),
    "ECR without a login": ("no basic auth credentials", "wants a login", 1),
    "hub without a login": (
        "denied: requested access to the resource is denied",
        "refuses this user",
        1,
    ),
    "wrong password": (
        "Error response from daemon: login attempt to http://localhost:5000/v2/ failed with status: 401 Unauthorized",
        "wants a login, or does not take this one",
        1,
    ),
    "ECR, token of yesterday": (
        "denied: Your authorization token has expired. Reauthenticate and try again.",
        "login of reg.example:5000 has expired",
        1,
    ),
    "ECR, not allowed": (
        "denied: User: arn:aws:sts::1:assumed-role/ci is not authorized to perform: ecr:InitiateLayerUpload",
        "ecr:InitiateLayerUpload",
        1,
    ),
    "ECR, tag there": (
        "tag invalid: The image tag '12.8-x' already exists in the 'runner' repository and cannot be overwritten "
        "because the repository is immutable.",
        "tags are immutable",
        1,
    ),
    "ECR, no repository": (
        "name unknown: The repository with name 'runner-gpu' does not exist in the registry with id '123456789012'",
        "aws ecr create-repository --repository-name runner-gpu",
        1,
    ),
    "too many pulls": (
        "toomanyrequests: You have reached your unauthenticated pull rate limit. https://www.docker.com/increase",
        "too many requests",
        1,
    ),
    "plain HTTP": ("http: server gave HTTP response to HTTPS client", "insecure-registries", 1),
    "own certificate": (
        'Get "https://reg.example/v2/": x509: certificate signed by unknown authority',
        "/etc/docker/certs.d/reg.example:5000/ca.crt",
        1,
    ),
    "pull of nothing": (
        "manifest for localhost:5000/a/nope:2 not found: manifest unknown: manifest unknown",
        "there is no image localhost:5000/a/nope:2",
        2,
    ),
    "no room": ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "docker builder prune", 1),
    "words nobody knows": (
        "Error response from daemon: the moon is full",
        "cannot push x: the moon is full\n    fix: run it again",
        1,
    ),
    "no words": ("", "cannot push x: docker does not say why\n    fix: run it again", 1),
}

BASE = {
    "misspelt base": ("localhost:5000/debian:bokworm: not found", "there is no image localhost:5000/debian:bokworm", 2),
    "newer words": (
        "docker.io/nvidia/cuda:99: failed to resolve source metadata for docker.io/nvidia/cuda:99: "
        "docker.io/nvidia/cuda:99: not found",
        "there is no image docker.io/nvidia/cuda:99",
        2,
    ),
    "private base": (
        "pull access denied, repository does not exist or may require authorization: server message: "
        "insufficient_scope: authorization failed",
        "not for everyone",
        2,
    ),
    "unreachable": (
        'failed to do request: Head "https://registry-1.docker.io/v2/nvidia/cuda/manifests/99": dial tcp: '
        "lookup registry-1.docker.io on 10.0.0.2:53: no such host",
        "registry-1.docker.io cannot be reached: no such host",
        1,
    ),
    "no such platform": (
        "no match for platform in manifest sha256:0b2f: not found",
        "not published for this platform",
        2,
    ),
    "no room": ("failed to copy: write /var/lib/docker/x: no space left on device", "docker builder prune", 1),
}


@pytest.mark.parametrize(("output", "words", "code"), REGISTRY.values(), ids=REGISTRY)
def test_a_registry_error_becomes_a_message_with_a_fix(output: str, words: str, code: int) -> None:
    problem = problems.registry(output, "cannot push x", "reg.example:5000")

    assert words in str(problem)
    assert "\n    fix: " in str(problem)
    assert problem.exit_code == code


@pytest.mark.parametrize(("output", "words", "code"), BASE.values(), ids=BASE)
def test_a_base_image_error_becomes_a_message_with_a_fix(output: str, words: str, code: int) -> None:
    problem = problems.base(output, "cannot build x")

    assert words in str(problem)
    assert "fix: " in str(problem)
    assert problem.exit_code == code


def test_words_of_the_engine_that_nobody_knows_say_where_to_look() -> None:
    assert str(problems.engine("the moon is full", "cannot tag x")).startswith(
        "cannot tag x: the moon is full\n    fix: run"
    )


@pytest.mark.parametrize("output", [
    "tar: lib/libcudnn.so: Cannot write: No space left on device",
    "E: You don't have enough free space in /var/cache/apt/archives/.",
    "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
    "write /var/lib/docker/overlay2/1/x: Disk quota exceeded",
])  # fmt: skip
def test_a_full_disk_is_recognized_in_the_output_of_tools(output: str) -> None:
    assert "docker builder prune" in problems.hint(output)


def test_a_failed_step_without_known_output_gets_no_advice() -> None:
    assert problems.hint("make: *** [all] Error 2\ncurl: (7) connection refused") == ""


def test_what_nobody_knows_is_shown_whole() -> None:
    lines = [f"line {number}: {'x' * 500}" for number in range(30)]
    for problem in (problems.registry("\n".join(lines), "cannot push x", "reg"), problems.base("\n".join(lines), "a")):
        assert all(line in str(problem) for line in lines)


def test_a_layer_that_the_builder_lost_is_not_a_missing_image() -> None:
    said = f"content digest sha256:{'8728ce3f' * 8}: not found"
    for problem in (problems.base(said, "cannot build x"), problems.registry(said, "cannot push x", "reg.example")):
        assert "the builder has lost a layer" in str(problem)
        assert "docker builder prune, then build again with --no-cache" in str(problem)
        assert "there is no image" not in str(problem)


def test_the_registry_of_lost_content_is_the_one_that_was_asked() -> None:
    digest = f"sha256:{'8728ce3f' * 8}"
    said = f"httpReadSeeker: failed open: content at https://nvcr.io/v2/nvidia/cuda/manifests/{digest} not found"
    assert f"nvcr.io does not have {digest} of nvidia/cuda" in str(problems.base(f"failed to copy: {said}", "a"))

"""Choice of the base of a runner image, and the message where there is none."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from infra.versions import CUDA_BASES
from paddock.images.docker import Local, Progress
from paddock.images.errors import BuildInputError
from paddock.images.recipes import bases


@pytest.mark.parametrize(("cuda", "ubuntu"), CUDA_BASES)
def test_every_pair_has_an_image_with_a_matching_digest(cuda: str, ubuntu: str) -> None:
    base = bases.published(cuda, ubuntu)
    assert base.cuda == cuda
    assert base.identity.startswith("sha256:")
    assert f":{cuda}." in base.image
    assert f"cudnn-devel-ubuntu{ubuntu}@sha256:" in base.image


def test_without_a_wish_there_is_one() -> None:
    assert (bases.DEFAULT_CUDA, bases.DEFAULT_UBUNTU) in CUDA_BASES


def test_an_update_is_its_minor() -> None:
    assert bases.published("12.8.1", "22.04") == bases.published("12.8", "22.04")


@pytest.mark.parametrize(("cuda", "ubuntu", "message"), [
    ("12.88", "22.04", r"there is no CUDA 12.88\n.* expected: one of .*12\.8, .*\n.* fix: did you mean 12\.8\?"),
    ("latest", "22.04", "there is no CUDA latest"),
    ("12.4", "24.04", r"no base image has CUDA 12.4 on Ubuntu 24.04\n.*CUDA 12.4 on 22.04.*\n.*--ubuntu 22.04, or"),
    ("12.8", "20.04", r"on Ubuntu 20.04\n.*\n.*fix: --ubuntu 22.04"),
    ("11.8", "22.04", r"CUDA 11.8 on Ubuntu 22.04\n.*\n.*fix: --cuda 12.4, or --base"),
    ("13.1", "24.04", r"fix: --cuda 13.0, or --base"),
    ("11.8", "18.04", r"fix: --cuda 12.4 --ubuntu 22.04, or --base"),
])  # fmt: skip
def test_a_missing_pair_is_reported_with_the_available(cuda: str, ubuntu: str, message: str) -> None:
    with pytest.raises(BuildInputError, match=message):
        bases.published(cuda, ubuntu)


AMD64 = "linux/amd64"


@dataclass
class Store:
    """The images of an engine; what is pulled comes with `later`."""

    here: dict[str, Local]
    later: dict[str, Local] = field(default_factory=dict)
    pulled: list[str] = field(default_factory=list)

    def image(self, reference: str) -> Local | None:
        return self.here.get(reference)

    def pull(self, reference: str, *, platform: str, progress: Progress) -> None:
        self.pulled.append(f"{reference} {platform} {progress}")
        self.here.update(self.later)


def local(digests: tuple[str, ...] = (), **environment: str) -> Local:
    return Local("sha256:1d", 1, {}, "2026-01-01T00:00:00Z", digests, "", environment)


def test_the_cuda_of_a_custom_base_is_its_own() -> None:
    images = {"plain": local(), "kit": local(CUDA_VERSION="12.6.3"), "libs": local(NV_CUDA_LIB_VERSION="13.0.2-1")}
    store = Store(images)
    assert {name: bases.custom(store, name, AMD64).cuda for name in images} == {
        "plain": None,
        "kit": "12.6",
        "libs": "13.0",
    }
    assert store.pulled == []


def test_a_base_is_identified_by_digest_or_local_id() -> None:
    digests = ("host.example/other@sha256:def", "host.example/name@sha256:abc")
    store = Store({"own:1": local(digests), "host.example/name:1": local(digests)})
    assert bases.custom(store, "own:1", AMD64).identity == "sha256:1d"
    assert bases.custom(store, "host.example/name:1", AMD64).identity == "sha256:abc"


def test_a_base_that_the_engine_has_not_is_pulled() -> None:
    store = Store({}, {"host.example/name:1": local(("host.example/name@sha256:abc",))})
    assert bases.custom(store, "host.example/name:1", "linux/arm64", "quiet").identity == "sha256:abc"
    assert store.pulled == ["host.example/name:1 linux/arm64 quiet"]

"""Verdicts on toolkits, drivers and GPUs at the edges of what the catalogue has; tests/plan has those of fleets."""

from __future__ import annotations

import pytest

from paddock import catalog
from paddock.catalog import cuda_match as match


@pytest.mark.parametrize(
    ("toolkit", "capability", "outcome", "why"),
    [
        ("12.8", "4.9", "impossible", "CUDA 12.8 compiles for 5.0 on: no X (compute capability 4.9)"),
        ("12.8", "5.0", "ok", "CUDA 12.8 compiles for X (compute capability 5.0)"),
        ("12.8", "12.0", "ok", "CUDA 12.8 compiles for X (compute capability 12.0)"),
        ("12.8", "12.1", "unknown", "compiles up to 12.0, and this is X (compute capability 12.1)"),
        ("13.4", "7.5", "unknown", "has an end of its range that no source names"),
        ("13.4", "7.0", "impossible", "compiles for 7.5 on"),
        ("99.0", "7.5", "unknown", "the catalogue has no CUDA 99.0"),
    ],
)
def test_a_gpu_of_no_catalogue_is_judged_by_its_capability(
    toolkit: str, capability: str, outcome: str, why: str
) -> None:
    found = match.on_capability(toolkit, capability, "X")
    assert (found.outcome, why in found.why) == (outcome, True), found.why


@pytest.mark.parametrize(
    ("driver", "gpu", "family", "outcome", "why"),
    [
        ("580", "v100-16gb", "p3", "ok", "driver 580 drives NVIDIA V100"),
        ("590", "t4", "p3", "impossible", "R580 is the last driver for p3"),
        ("590", "t4", "g7", "impossible", "g7 needs driver R595 or newer"),
        ("595", "t4", "g7", "ok", "driver 595 drives NVIDIA T4"),
        ("595", "v100-16gb", "g4dn", "impossible", "driver 595 no longer drives NVIDIA V100"),
        ("570", "b300", "g4dn", "impossible", "does not yet drive NVIDIA B300"),
        ("575", "b300", "g4dn", "ok", "driver 575 drives"),
        ("470", "t4", "g4dn", "unknown", "the catalogue has no branch of driver 470"),
    ],
)
def test_a_driver_drives_a_gpu_within_the_branches_of_its_family(
    driver: str, gpu: str, family: str, outcome: str, why: str
) -> None:
    found = match.drives(driver, catalog.gpu(gpu), [family])
    assert (found.outcome, why in found.why) == (outcome, True), found.why
    assert (found.least, found.most) == (595 if "needs driver" in why else None, 580 if "last driver" in why else None)


@pytest.mark.parametrize(
    ("toolkit", "driver", "needs"),
    [
        ("12.8", "570.26", "570.26"),
        ("12.8.0", "570.26", "570.26"),
        ("12.8.1", "570.124.06", "570.124.06"),
        ("13.0.2", "580.95.05", "580.95.05"),
        ("13.0.3", "580.65.06", "580.65.06"),
    ],
)
def test_an_update_needs_the_driver_that_is_bundled_with_it(toolkit: str, driver: str, needs: str) -> None:
    found = match.on_driver(toolkit, driver, catalog.gpu("t4"))
    assert (found.outcome, found.needs) == ("ok", needs)
    assert found.why == f"{driver} is at least {needs}, which CUDA {toolkit} is bundled with"


def test_below_the_floor_an_uncatalogued_gpu_is_unknown() -> None:
    for gpu, outcome in ((None, "unknown"), (catalog.gpu("t4"), "needs-compat")):
        found = match.on_driver("13.0", "570.124.06", gpu)
        assert (found.outcome, found.needs, found.floor) == (outcome, "580.65.06", "580.65.06")
        assert found.why.startswith("570.124.06 is below 580.65.06, the least that any CUDA 13 runs on")
        assert "cuda-compat-13-0" in found.why


def test_a_compiler_that_dropped_a_gpu_and_one_before_it_say_so() -> None:
    dropped, before = match.on_gpu("13.0", catalog.gpu("v100-16gb")), match.on_gpu("12.4", catalog.gpu("b200"))
    assert (dropped.outcome, before.outcome) == ("impossible", "impossible")
    assert dropped.why == "CUDA 13 dropped NVIDIA V100 16 GB (compute capability 7.0); 12.9 is its last"
    assert before.why == (
        "CUDA 12.4 is older than NVIDIA B200 (compute capability 10.0): 12.8 is the first to compile for it"
    )
    assert match.on_gpu("99.0", catalog.gpu("b200")).outcome == "unknown"


@pytest.mark.parametrize(
    ("driver", "gpu", "newest"),
    [("580.159.03", "h100", "13.0"), ("580.159.03", "v100-16gb", "12.9"), ("570.124.06", "t4", "12.8"),
     ("570.124.06", "b300", None)],
)  # fmt: skip
def test_the_newest_toolkit_is_one_with_every_feature(driver: str, gpu: str, newest: str | None) -> None:
    assert match.best_toolkit(driver, catalog.gpu(gpu)) == newest


@pytest.mark.parametrize(
    ("image", "denies"),
    [("r/x:nocuda-runner2.3-0a", True), ("r/x:nocuda-runner2.3-0a@sha256:0", True), ("r/x:cuda12.8", False)],
)
def test_our_tag_denies_cuda(image: str, denies: bool) -> None:
    assert match.tag_denies_cuda(image) == denies

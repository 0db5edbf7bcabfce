"""Known faults and settings: which versions a row is about, and that each row can be trusted."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.gpu import user_data
from paddock import catalog
from paddock.catalog import faults
from paddock.catalog.faults import known_faults, not_followed, order
from paddock.fleet.model.pool import GpuPool

AL2023 = [fault for fault in faults.faults() if fault.software == "al2023"]


@given(st.sampled_from(AL2023), st.dates(min_value=date(2024, 1, 1)), st.data())
def test_a_release_fails_between_its_days_with_what_breaks(fault, day, data) -> None:
    release = f"1.35.4-{day:%Y%m%d}"
    with_all, families = set(fault.settings), set(fault.families)
    inside = order(fault.since) <= order(release) and (fault.until is None or order(release) < order(fault.until))
    assert (fault in known_faults("al2023", release, with_all | {"other"}, families or {"g5"})) == inside
    if with_all:
        fewer = with_all - {data.draw(st.sampled_from(sorted(with_all)))}
        assert fault not in known_faults("al2023", release, fewer, families or {"g5"})
    if families:
        assert fault not in known_faults("al2023", release, with_all, {"g5"})
    assert fault not in known_faults("bottlerocket", release, with_all, families)


@pytest.mark.parametrize(("older", "newer"), [
    ("1.36.2-20260505", "1.34.9-20260610"),
    ("v1.9.0-eksbuild.11", "v1.22.0-eksbuild.1"),
    ("1.22.0", "v1.22.0-eksbuild.1"),
    ("v1.22.1-eksbuild.2", "1.22.2"),
    ("0.14.2", "0.15"),
])  # fmt: skip
def test_versions_are_compared_as_their_makers_count(older: str, newer: str) -> None:
    assert order(older) < order(newer)


def test_every_row_has_a_source_and_names_settings_that_are_known() -> None:
    known = {(row.software, row.setting) for row in faults.settings()}
    for row in (*faults.faults(), *faults.settings()):
        assert faults.fault_sources()[row.source].as_of
        assert row.severity in ("error", "warning", "info")
    for fault in faults.faults():
        assert {(fault.software, setting) for setting in fault.settings} <= known
        assert fault.until is None or order(fault.since) < order(fault.until)
        assert fault.breaks


@pytest.mark.parametrize(
    ("instances", "nvme"), [("g4dn.xlarge", "auto"), ("g5.2xlarge", "none"), ("p3.2xlarge", "auto")]
)
def test_what_is_written_into_nodes_has_a_first_version(instances: str, nvme: str) -> None:
    pool = GpuPool.model_validate({"instances": [instances], "nodes": {"max": 1}, "nvme": nvme})
    known = {(row.software, row.setting) for row in faults.settings() if row.since}
    written = {("al2023", setting) for setting in user_data.settings(pool, on_bottlerocket=False)}
    written |= {("bottlerocket", setting) for setting in user_data.settings(pool, on_bottlerocket=True)}
    written |= {("al2023", setting) for setting in user_data.image_settings(pre_pulled=True)}
    assert written <= known
    config = user_data.node_config(pool, 16)["spec"]
    assert ("raid0" in user_data.settings(pool, on_bottlerocket=False)) == ("instance" in config)
    assert config["featureGates"] == {"FastImagePull": True}


def test_a_setting_is_followed_from_its_first_version_on() -> None:
    used = {"max-pods-expression", "fast-image-pull"}
    assert [row.setting for row in not_followed("al2023", "1.33.5-20251002", used)] == ["max-pods-expression"]
    assert not list(not_followed("al2023", "1.33.5-20251007", used))


@pytest.mark.parametrize(("families", "branch"), [
    ({"g7"}, 595), ({"g6f"}, 580), ({"g5"}, None), ({"g7", "g6f"}, None), ({"g7", "g5"}, None),
])  # fmt: skip
def test_a_release_with_two_drivers_gives_a_family_the_one_that_drives_it(
    families: set[str], branch: int | None
) -> None:
    several = catalog.drivers_of("1.36.9-20260917")
    assert several is not None
    assert several.branch_for(families) == branch
    assert catalog.drivers_of("1.36.2-20260714") is None

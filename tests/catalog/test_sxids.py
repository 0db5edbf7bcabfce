"""The table of SXids: what NVIDIA's guide calls fatal."""

from __future__ import annotations

from paddock.catalog import _data
from paddock.catalog.xids import sxids

# Typed by hand from the guide's tables of fatal errors, not read from our file.
ALWAYS_FATAL = {12020, 22003, 22011, *range(23001, 23018)}
FATAL_ON_A_PORT = {11001, 12001, 14017, 15001, 19047, 20034, 24004, 24007}


def test_fatal_errors_of_a_switch_end_in_a_reset_or_a_reboot() -> None:
    assert {code for code, entry in sxids().items() if entry.action == "reboot" and entry.severity == "unhealthy"} == (
        ALWAYS_FATAL
    )
    assert {(sxids()[code].action, sxids()[code].severity) for code in FATAL_ON_A_PORT} == {("reset", "unhealthy")}
    keys = {source["key"] for source in _data.document("sxids.json")["sources"]}
    assert {entry.source for entry in sxids().values()} <= keys

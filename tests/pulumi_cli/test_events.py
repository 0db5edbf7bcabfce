"""Parsing of the engine's output."""

from __future__ import annotations

import json

from paddock.pulumi_cli import events
from paddock.pulumi_cli.events import Diagnostic, ResourceStep, Violation

NETWORK, SUBNET = (f"urn:pulumi:dev::paddock::aws:ec2/x:X::{name}" for name in ("network", "subnet"))


def line(event: str, **fields: object) -> str:
    return json.dumps({"sequence": 1, event: fields})


def about(urn: str, operation: str = "create", *, custom: bool = True) -> dict[str, object]:
    return {"op": operation, "urn": urn, "new": {"custom": custom}}


OUTPUT = "\n".join(
    (
        "warning: something that is no event",
        line("resourcePreEvent", metadata=about("urn:pulumi:dev::paddock::pulumi:pulumi:Stack::dev", custom=False)),
        line("resourcePreEvent", metadata=about(NETWORK)),
        line("resOutputsEvent", metadata=about(NETWORK)),
        line("resourcePreEvent", metadata=about(SUBNET)),
        line("diagnosticEvent", severity="debug", message="of no interest"),
        line("diagnosticEvent", severity="warning", message="slow down\n", urn=SUBNET),
        line("policyEvent", policyName="PAD003", enforcementLevel="mandatory", resourceUrn=NETWORK, message="open\n"),
        line("resOpFailedEvent", metadata=about(SUBNET)),
        line("resOutputsEvent", metadata=about(SUBNET))[:40],
    )
)


def test_events_are_steps_diagnostics_and_violations() -> None:
    assert [item for line in OUTPUT.splitlines() if (item := events.event(line))] == [
        ResourceStep("create", NETWORK),
        Diagnostic("warning", "slow down", SUBNET),
        Violation("PAD003", True, NETWORK, "open"),
        ResourceStep("create", SUBNET, failed=True),
    ]


def test_what_was_begun_and_not_ended_is_known() -> None:
    assert events.unfinished(OUTPUT) == [SUBNET]

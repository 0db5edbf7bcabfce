"""What commands ask of AWS, against the policies that `init.permissions` writes for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from paddock.aws.client import Aws
from paddock.aws.errors import action
from paddock.init.permissions import table

_COMMANDS = {
    "test_ami_build": "ami.build", "test_ami_list": "ami.prune", "test_ami_promote": "ami.promote",
    "test_ami_prune": "ami.prune", "test_cost": "cost", "test_destroy": "destroy", "test_doctor": "doctor",
    "test_holders": "destroy", "test_in_the_way": "doctor", "test_rerun": "runners.rerun",
    "test_retention": "images.check", "test_snapshot": "why", "test_status": "status", "test_verify": "verify",
    "test_why": "why",
}  # fmt: skip
"""The command that a module's tests are about, by the beginning of its name; the one that asks most of several."""


@pytest.fixture(autouse=True)
def only_what_policies_allow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compare the operations that a test's command asks of AWS with what its policy allows. A dry run asks for none."""
    command = next((name for start, name in _COMMANDS.items() if request.path.name.startswith(start)), "")
    operations: set[str] = set()
    for name in ("ask", "change", "pages"):
        original = getattr(Aws, name)

        def noting(self: Aws, service: str, operation: str, *rest: Any, of: Any = original, **more: Any) -> Any:
            if not more.get("DryRun"):
                operations.add(action(service, operation))
            return of(self, service, operation, *rest, **more)

        monkeypatch.setattr(Aws, name, noting)
    yield
    allowed = {action.lower() for row in table.of_commands() if row.type == command for action in row.both}
    denied = sorted(action for action in operations if action.lower() not in allowed)
    assert not denied or not command, f"the policy of {command} lacks {', '.join(denied)}"

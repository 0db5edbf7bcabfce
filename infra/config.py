"""Where the program meets Pulumi's configuration."""

from __future__ import annotations

import pulumi

from paddock.fleet import Fleet, FleetError, parse


def fleet() -> Fleet:
    """The stack's fleet. Raises RunError, which Pulumi prints without a traceback."""
    keys = ("aws:region", "paddock:fleet", "paddock:layers")
    found = {key: pulumi.Config(key.split(":")[0]).get(key.split(":")[1]) for key in keys}
    try:
        return parse({key: value for key, value in found.items() if value}, pulumi.get_project(), pulumi.get_stack())
    except FleetError as error:
        raise pulumi.RunError(str(error)) from None

"""Resource mode from the flags of a command."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.errors import did_you_mean
from paddock.serve.errors import ServeInputError
from paddock.terminal import caller_path

if TYPE_CHECKING:
    from paddock.modes.policy import Policy

_CONCURRENCY = 4
_FILES = (".yaml", ".yml", ".json")
_OF_BENCH = ("applications", "users", "each_user", "adaptive", "gpu")
"""Parts of a policy that a replica does not keep: the gateway limits users, and others' load is not read."""


@dataclass(frozen=True, slots=True)
class LoadMode:
    """Mode of an instance: its name or JSON text, the largest batch, and the part of the memory left to others.

    `share` is the part of a GPU that it leases, None the GPU alone. `pauses` is True where it ever pauses.
    """

    name: str
    text: str
    most: int
    reserve: float
    share: float | None
    pauses: bool = False

    def concurrency(self, requested: int | None) -> int:
        """Return the requests side by side. Raises ServeInputError for more than the mode allows."""
        if requested is not None and requested > self.most:
            raise ServeInputError(
                f"--concurrency: {requested}, and the mode {self.name} allows {self.most} requests side by side"
                f"\n    expected: 1 to {self.most}\n    fix: another --mode, or a policy with max_batch_size"
            )
        return min(_CONCURRENCY, self.most) if requested is None else requested


def load_mode(name: str) -> LoadMode:
    """Return the mode of `--mode`. Raises ServeInputError, and ModeInputError for a policy's file."""
    from paddock.modes import policy
    from paddock.modes.config import PRESETS, VARIABLE, deployment_mode

    if not name:
        name = deployment_mode() if os.environ.get(VARIABLE) else "aggressive"
    path = caller_path(name)
    if path.suffix in _FILES:
        own = policy.read(path)
        beyond = [key for key in _OF_BENCH if getattr(own, key) != getattr(policy.Policy(), key)]
        if beyond:
            raise ServeInputError(
                f"--mode: {path} has {', '.join(beyond)}, which a replica does not keep"
                "\n    expected: mode, resources and schedule\n    fix: leave the rest out; serve.up limits users"
            )
        return _mode(path.stem, own.model_dump_json(), own)
    if name not in PRESETS:
        hint = did_you_mean(name, PRESETS, f"one of {', '.join(PRESETS)}, or a file")
        raise ServeInputError(f"--mode: there is no mode {name!r}\n    expected: {hint}")
    preset = next(preset for preset in PRESETS if preset == name)
    return _mode(name, name, policy.of_mode(preset))


def _mode(name: str, text: str, policy: Policy) -> LoadMode:
    from paddock.modes.config import PRESETS
    from paddock.serve.engine.lease import largest_memory_part, lease_share

    configs = (policy.resources, *(PRESETS[window.mode] for window in policy.schedule))
    most = max(config.max_batch_size for config in configs)
    pauses = any(config.enable_auto_throttle for config in configs)
    return LoadMode(name, text, most, round(1 - largest_memory_part(policy), 4), lease_share(policy), pauses)

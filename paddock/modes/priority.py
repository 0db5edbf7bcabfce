"""Priority of this process: nice and ionice, applied where the system lets it, and otherwise the reason.

psutil's rules: ionice exists on Linux and Windows, and a level goes with the classes real time and best effort alone
(psutil raises ValueError for one with idle). On Windows nice takes priority classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from paddock.modes.config import ResourceConfig
from paddock.modes.errors import ModeError


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that was applied, or refused with the reason."""

    name: str
    value: str
    applied: bool
    reason: str = ""


def apply(config: ResourceConfig, psutil: Any = None, *, pid: int | None = None) -> tuple[Setting, ...]:
    """Set the priority of this process, or of that pid: on Linux a thread is one, too.

    Raises ModeError where psutil is not installed.
    """
    psutil = psutil or _psutil()
    process = psutil.Process(pid) if pid is not None else psutil.Process()
    return (_nice(config, psutil, process), _ionice(config, psutil, process))


def _nice(config: ResourceConfig, psutil: Any, process: Any) -> Setting:
    value = config.process_priority
    if psutil.WINDOWS:
        name = _windows_class(value)
        return _applied("nice", name, psutil, lambda: process.nice(getattr(psutil, name)))
    return _applied("nice", str(value), psutil, lambda: process.nice(value))


def _ionice(config: ResourceConfig, psutil: Any, process: Any) -> Setting:
    kind, level = config.io_priority_class, config.io_priority_level
    if psutil.WINDOWS:
        name = "IOPRIO_VERYLOW" if kind == 3 else "IOPRIO_NORMAL"
        return _applied("ionice", name, psutil, lambda: process.ionice(getattr(psutil, name)))
    if not hasattr(process, "ionice"):
        return Setting("ionice", f"class {kind}", False, "this system has no I/O priorities")
    if kind in (1, 2):
        return _applied("ionice", f"class {kind}, level {level}", psutil, lambda: process.ionice(kind, level))
    return _applied("ionice", f"class {kind}", psutil, lambda: process.ionice(kind))


def _applied(name: str, value: str, psutil: Any, change: Any) -> Setting:
    try:
        change()
    except psutil.AccessDenied:
        return Setting(name, value, False, "only root may raise a priority")
    except (psutil.Error, OSError, ValueError) as error:
        return Setting(name, value, False, str(error))
    return Setting(name, value, True)


def _windows_class(value: int) -> str:
    """Return Windows' priority class for a nice value: that of the same intent."""
    if value >= 15:
        return "IDLE_PRIORITY_CLASS"
    if value > 0:
        return "BELOW_NORMAL_PRIORITY_CLASS"
    return "NORMAL_PRIORITY_CLASS" if value == 0 else "ABOVE_NORMAL_PRIORITY_CLASS"


def _psutil() -> ModuleType:
    try:
        import psutil
    except ModuleNotFoundError:
        raise ModeError(
            "psutil is not installed here, so no priority can be set"
            "\n    fix: ./inv bench in a checkout installs it, or pip install 'paddock[bench]'"
        ) from None
    module: ModuleType = psutil
    return module

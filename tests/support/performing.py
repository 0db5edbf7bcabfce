"""Commands as the console performs them, in a project of the test's own and with counterparts of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from paddock.console import command
from paddock.console.parameters import Parameters


def performed(function: Callable[..., Any], root: Path, parameters: Parameters, **counterparts: Any) -> int:
    """Perform a command about the project in `root`, print its report and return the exit code.

    `counterparts` are what the function takes besides, such as a client. Raises what the command raises.
    """
    declared: command.Command = vars(function)["command"]
    with mock.patch.dict(os.environ, PADDOCK_ROOT=str(root)):
        return command.perform(replace(declared, function=partial(function, **counterparts)), parameters)

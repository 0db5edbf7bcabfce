"""What a user is told when the lab cannot do what was asked."""

from __future__ import annotations

from paddock.errors import PaddockError


class LabError(PaddockError):
    """Something in the lab failed; the message says what and how to go on."""


class LabInputError(LabError):
    """The lab was asked for what cannot be: a taken port, a wrong name, a missing program."""

    exit_code = 2

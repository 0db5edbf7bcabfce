"""What a user is told when the lab cannot do what was asked."""

from __future__ import annotations


class LabError(Exception):
    """Something in the lab failed; the message says what and how to go on."""

    exit_code = 1


class LabInputError(LabError):
    """The lab was asked for what cannot be: a taken port, a wrong name, a missing program."""

    exit_code = 2

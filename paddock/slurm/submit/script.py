"""Batch scripts with a job's variables in them.

They are neither in the environment of sbatch, whose own PATH they could replace, nor on a command line, which all see.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")


def batch_script(text: str, variables: Mapping[str, str]) -> str:
    """Return a script that has the variables, below its #SBATCH lines."""
    if not variables:
        return text
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    lines = [f"{line}\n" for line in text.removesuffix("\n").split("\n")]
    # sbatch reads its options up to the first line that is neither empty nor a comment.
    size = next((n for n, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    head, interpreter = "".join(lines[:size]), lines[0].removeprefix("#!").split(maxsplit=1)
    if _is_shell(interpreter):
        return f"{head}{exports}{''.join(lines[size:])}"
    options = "".join(line for line in lines[:size] if line.startswith("#SBATCH"))
    end = "PADDOCK_END"
    while end in text:
        end += "_"
    return f"#!/bin/sh\n{options}{exports}exec {lines[0][2:].strip()} /dev/fd/3 3<<'{end}'\n{''.join(lines)}{end}\n"


def _is_shell(interpreter: list[str]) -> bool:
    words = " ".join(interpreter).split()
    if words and words[0].rpartition("/")[2] == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return bool(words) and words[0].rpartition("/")[2] in _SHELLS

"""Completion of command names and flags in a shell."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock.console.command import command
from paddock.console.contents import Contents
from paddock.console.output import BadFlag
from paddock.console.parameters import Parameters, parameter
from paddock.errors import did_you_mean

# The program on the command line is asked, so that one script serves every checkout and an installed `paddock`.
_BASH = """\
_paddock_complete() {
    local candidates
    candidates="$("${COMP_WORDS[0]}" --complete -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)"
    COMPREPLY=($(compgen -W "$candidates" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _paddock_complete inv paddock
"""
_FISH = """\
function _paddock_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    $words[1] --complete -- $words (commandline --current-token) 2>/dev/null
end
complete --command inv --arguments '(_paddock_complete)'
complete --command paddock --arguments '(_paddock_complete)'
"""
_ZSH = """\
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_paddock_complete() {
    local -a candidates
    candidates=(${(f)"$("${words[1]}" --complete -- "${(@)words[1,CURRENT]}" 2>/dev/null)"})
    compadd -a candidates || _files
}
compdef _paddock_complete inv paddock
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@dataclass(frozen=True, kw_only=True)
class Shell(Parameters):
    """Parameters of `completion`."""

    shell: str = parameter("", "bash, zsh or fish; by default the one that $SHELL names")


@command(reports=False)
def completion(parameters: Shell) -> int:
    """Print the script of a shell. Raises BadFlag."""
    name = parameters.shell or Path(os.environ.get("SHELL", "")).name
    if name not in SCRIPTS:
        hint = did_you_mean(name, SCRIPTS, f"--shell {next(iter(SCRIPTS))}")
        problem = f"there is no completion for {name!r}" if name else "$SHELL is not set, so it names no shell"
        raise BadFlag(f"--shell: {problem}\n    expected: one of {', '.join(SCRIPTS)}\n    fix: {hint}")
    sys.stdout.write(SCRIPTS[name])
    return 0


def candidates(contents: Contents, words: Sequence[str]) -> list[str]:
    """Return what may come next on a line of these words, of which the first is the program and the last is begun."""
    begun = words[-1] if len(words) > 1 else ""
    named = [word for word in words[1:-1] if not word.startswith("-")]
    found = contents.find(named[0]) if named else None
    if found is None:
        shown = contents.groups(hidden=bool(begun)).values()
        names = [entry.name for group in shown for entry in group]
        return [name for name in [*names, *contents.aliases, "--help", "--list", "--version"] if name.startswith(begun)]
    if not begun.startswith("-"):
        return []  # the shell's own completion names files
    command_ = found[0].load()
    flags = [flag.option for flag in command_.parameters.flags() if not flag.trailing]
    return [flag for flag in [*flags, *(["--json"] if command_.reports else []), "--help"] if flag.startswith(begun)]

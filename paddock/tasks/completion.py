"""Completion of task names and flags in a shell."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from invoke.context import Context

from paddock.errors import did_you_mean
from paddock.tasks.common import task
from paddock.terminal import BadFlag

# The program that stands on the line is asked, so that one script serves every checkout and an installed `paddock`.
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


@task(help={"shell": "bash, zsh or fish; by default the one that $SHELL names"})
def completion(c: Context, shell: str = "") -> None:
    """Print what completes tasks and flags in a shell: eval "$(./inv completion --shell bash)"."""
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SCRIPTS:
        hint = did_you_mean(name, SCRIPTS, f"--shell {next(iter(SCRIPTS))}")
        problem = f"there is no completion for {name!r}" if name else "$SHELL is not set, so it names no shell"
        raise BadFlag(f"--shell: {problem}\n    expected: one of {', '.join(SCRIPTS)}\n    fix: {hint}")
    sys.stdout.write(SCRIPTS[name])

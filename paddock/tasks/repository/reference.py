"""The page of all tasks, generated from them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from paddock.errors import PaddockError
from paddock.tasks import help
from paddock.terminal import update

PATH = "docs/tasks.md"
_INTRODUCTION = """\
# Tasks

<!-- Generated from paddock/tasks by `./inv docs.generate`. Change the tasks, not this file. -->

`./inv` alone names the first commands, `./inv --list` every task, `./inv TASK --help` the flags of one. A group alone,
such as `./inv lab`, lists its tasks; `bench` and `docs` are groups and tasks of their own, and their help is both.

| the same in every task | |
|---|---|
| `--json` | prints JSON and nothing else; stands last, since a word behind it is a file |
| `--json FILE` | writes JSON there, beside the text on the terminal |
| lengths of time | `30s`, `20m`, `2h`; a bare number is in the unit that the flag names, else in seconds |
| paths | from the folder that the command is called in |
| exit code | unless a task's page says otherwise: 0 success, 1 a check failed, 2 a mistake in the command or a file, \
5 `smoke` found no GPU to test, 70 a bug, 74 a full disk, 130 interrupted, 141 the reader has gone |

## Completion in a shell

Bash completes tasks and flags after this line, which may stand in `~/.bashrc` with the path of the checkout:

```sh
eval "$(./inv completion --shell bash)"
```

In `~/.zshrc` it is `--shell zsh`. For fish: `./inv completion --shell fish > ~/.config/fish/completions/inv.fish`.

## On a node, without a checkout

`./inv wheel` writes a wheel of the tasks that work on a machine's own GPUs, the one that runner images hold. `uv tool
install` or `pipx install` makes the program `paddock` of it; only its dependencies come from a package index. There the
same tasks are `paddock gpu.list`, `paddock smoke` and so on, and messages say `paddock` too. In a checkout that program
is `.venv/bin/paddock`.
"""


def page() -> str:
    """Return the page as Markdown."""
    lines = [_INTRODUCTION]
    for title, names in help.groups().items():
        lines += [f"## {title}\n", "| task | |", "|---|---|"]
        lines += [f"| [`{name}`](#{_anchor(name)}) | {_cell(help.summary(name))} |" for name in names]
        lines.append("")
        for name in names:
            lines += _task(name)
    return "\n".join(lines).rstrip() + "\n"


def _task(name: str) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"`./inv {help.usage(name)}`"
    if others := help.other_names(name):
        yield f"\nAlso {', '.join(f'`{other}`' for other in others)}."
    if rows := help.flags(name):
        yield "\n| flag | |\n|---|---|"
        yield from (f"| `{_cell(flag)}` | {_cell(text)} |" for flag, text in rows)
    yield ""


def _anchor(name: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return name.replace(".", "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    try:
        update(Path(PATH), page())
    except PaddockError as error:
        sys.exit(str(error))

"""The page of all commands, made of the table of contents."""

from __future__ import annotations

from collections.abc import Iterator

from paddock.console import help
from paddock.console.command import Entry
from paddock.console.contents import Contents
from paddock.console.parser import usage
from paddock.tasks.program import contents

PATH = "docs/tasks.md"
_INTRODUCTION = """\
# Commands

<!-- Generated from paddock/tasks by `./inv docs.generate`. Change the commands, not this file. -->

`./inv` alone names the first commands, `./inv --list` every one, `./inv COMMAND --help` the flags of one. A group
alone, such as `./inv lab`, lists its commands; `init`, `bench`, `catalog` and `docs` are groups and commands of their
own, and their help is both.

| the same in every command | |
|---|---|
| `--json` | prints JSON and nothing else; comes last, since a word behind it is a file |
| `--json FILE` | writes JSON there, next to the text on the terminal |
| lengths of time | `30s`, `20m`, `2h`; a bare number is in the unit that the flag names, else in seconds |
| paths | from the folder that the command is called in |
| exit code | unless a command's page says otherwise: 0 success, 1 a check failed, 2 a mistake in the command or a \
file, 5 `smoke` found no GPU to test, 70 a bug, 74 a full disk, 130 interrupted, 141 the reader is gone |

## Completion in a shell

Bash completes commands and flags after this line, which may be in `~/.bashrc` with the path of the checkout:

```sh
eval "$(./inv completion --shell bash)"
```

In `~/.zshrc` it is `--shell zsh`. For fish: `./inv completion --shell fish > ~/.config/fish/completions/inv.fish`.

## On a node, without a checkout

`./inv images.build wheel` writes a wheel of the commands that work on a machine's own GPUs, the one that runner images
hold. `uv tool install` or `pipx install` makes the program `paddock` of it; only its dependencies come from a package
index. There the same commands are `paddock gpu.list`, `paddock smoke` and so on, and messages say `paddock` too. In a
checkout that program is `.venv/bin/paddock`.

Commands that had another name are listed in [their own page](renamed.md).

"""


def page() -> str:
    """Return the page as Markdown."""
    every = contents()
    lines = [_INTRODUCTION]
    for title, entries in every.groups(hidden=True).items():
        lines += [f"## {title}\n", "| command | |", "|---|---|"]
        lines += [f"| [`{entry.name}`](#{_anchor(entry.name)}) | {_cell(entry.summary)} |" for entry in entries]
        lines.append("")
        for entry in entries:
            lines += _command(every, entry)
    return "\n".join(lines).rstrip() + "\n"


def _command(every: Contents, entry: Entry) -> Iterator[str]:
    yield f"### {entry.name}\n"
    yield f"`./inv {usage(entry.name, entry.load())}`"
    if rest := entry.help.partition(". ")[2]:
        yield f"\n{rest}"
    if others := every.aliases_of(entry.name):
        yield f"\nAlso {', '.join(f'`{other}`' for other in others)}."
    if rows := help.flags(entry):
        yield "\n| flag | |\n|---|---|"
        yield from (f"| `{_cell(flag)}` | {_cell(text)} |" for flag, text in rows)
    yield ""


def _anchor(name: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return name.replace(".", "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")

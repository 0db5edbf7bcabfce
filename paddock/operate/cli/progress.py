"""Progress of long work on standard error: one moving line on a terminal, a line for each new step elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paddock.errors import printable
from paddock.terminal import console


@contextmanager
def progress(*, plain_lines: bool = True) -> Iterator[Callable[[str], None]]:
    """Yield the function that says the next step. Without `plain_lines` it is silent where there is no terminal."""
    errors = console(sys.stderr)
    if not errors.is_terminal:
        last = ""

        def say(text: str) -> None:
            nonlocal last
            if plain_lines and text != last:
                errors.print(printable(text), soft_wrap=True, markup=False, highlight=False)
            last = text

        yield say
        return
    with errors.status("") as status:
        from rich.markup import escape

        yield lambda text: status.update(escape(printable(text)))


def asks() -> bool:
    """Return whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()

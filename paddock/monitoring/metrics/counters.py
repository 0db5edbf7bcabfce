"""Growth of counters whose series begin while they are watched."""

from __future__ import annotations


def growth(series: str, window: str) -> str:
    """Return the expression for what each counter has grown by in a window, its first value included.

    `increase` compares samples of a series, so it leaves out the value with which a series begins: a counter that is
    first seen at 20 has grown by nothing. Here a series that was not there at the window's start brings its least
    value along.
    """
    first = f"(min_over_time({series}[{window}]) unless {series} offset {window})"
    return f"(increase({series}[{window}]) + {first} or increase({series}[{window}]) or {first})"

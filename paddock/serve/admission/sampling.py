"""Choice of the next token, as a request asks for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """Choice of tokens that a request asks for; None where it says nothing.

    Without a temperature the most probable token is taken, so that answers repeat. A `top_p` below 1 alone means the
    temperature 1, since it would have no effect else. Equal seeds give equal draws to equal requests.
    """

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None

    @property
    def greedy(self) -> bool:
        """Return whether the most probable token is taken."""
        return not self.scale or self.top_p == 0

    @property
    def scale(self) -> float:
        """Return the temperature that holds."""
        if self.temperature is not None:
            return self.temperature
        return 1.0 if self.top_p is not None and self.top_p < 1 else 0.0


GREEDY = Sampling()

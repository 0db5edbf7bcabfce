"""Published configurations with what transformers counts of them, and the table that docs/models.md shows.

`python -m tests.models.configurations` counts again, where torch and transformers are, and writes both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.models import config, formula, meta
from paddock.models.config import Configuration
from paddock.models.errors import ModelError
from paddock.models.model import billions

FILE = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[2] / "docs/models.md"
BEGIN, END = "<!-- configurations: begin -->\n", "<!-- configurations: end -->\n"


@dataclass(frozen=True, slots=True)
class Published:
    """A configuration, the page it is from, its kind in words, and the parameters that transformers counts."""

    name: str
    source: str
    kind: str
    config: Mapping[str, Any]
    parameters: int

    @property
    def configuration(self) -> Configuration:
        return config.of(self.config, self.name)

    @property
    def by_formula(self) -> int | None:
        """Parameters by our formula; None where it refuses the kind by name."""
        try:
            return formula.model(self.configuration, self.name).parameters
        except ModelError:
            return None


DOCUMENT: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
VERSION: str = DOCUMENT["transformers"]
CONFIGURATIONS: Mapping[str, Published] = {
    name: Published(name, **values) for name, values in DOCUMENT["configurations"].items()
}


def table() -> str:
    """Return the table of all configurations: ours, transformers', and by how much they differ."""
    rows = [f"| model | kind | by formula | transformers {VERSION} | differs |", "|---|---|---|---|---|"]
    for item in CONFIGURATIONS.values():
        ours = item.by_formula
        counted = "refused by name" if ours is None else billions(ours)
        differs = "" if ours is None else f"{(ours - item.parameters) / item.parameters:+.2%}".replace("+0.00%", "0")
        rows.append(
            f"| [{item.name}]({item.source}) | {item.kind} | {counted} | {billions(item.parameters)} | {differs} |"
        )
    return "\n".join(rows) + "\n"


def page() -> str:
    """Return docs/models.md with the table as it is now."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


def main() -> None:
    """Count all configurations again, and write the counts and the page."""
    version = meta.transformers_version()
    for name, values in DOCUMENT["configurations"].items():
        pieces = meta.pieces(config.of(values["config"], name))
        if isinstance(pieces, str):
            raise SystemExit(f"{name}: {pieces}")
        values["parameters"] = sum(count for _, count, _ in pieces)
    FILE.write_text(json.dumps({**DOCUMENT, "transformers": version}, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

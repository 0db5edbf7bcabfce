"""Published configurations: ours against transformers' own count, kept as data, and counted again where torch is."""

from __future__ import annotations

import pytest

from paddock.models import meta
from tests.models.configurations import CONFIGURATIONS, PAGE, Published, page
from tests.support.packages import need

WITHIN = 0.02
FEW = ("gemma-3-4b", "Qwen3-30B-A3B", "gpt-oss-20b", "LFM2-1.2B", "DeepSeek-V2-Lite")
"""Those of each kind, which are counted again wherever torch is; `--explore` counts all."""
NEVER_REFUSED = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "phi", "deepseek", "gpt_oss")


@pytest.mark.parametrize("item", [pytest.param(item, id=name) for name, item in CONFIGURATIONS.items()])
def test_a_formula_counts_as_transformers_does(item: Published) -> None:
    if (ours := item.by_formula) is not None:
        assert ours == pytest.approx(item.parameters, rel=WITHIN)


def test_at_most_five_are_refused_by_name() -> None:
    assert len(CONFIGURATIONS) >= 40
    refused = [item.config["model_type"] for item in CONFIGURATIONS.values() if item.by_formula is None]
    assert len(refused) <= 5
    assert not [kind for kind in refused if kind.startswith(NEVER_REFUSED)]


def test_the_page_shows_the_table_as_it_is() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.models.configurations writes it"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.explore) for name in CONFIGURATIONS]
)
def test_transformers_counts_what_is_kept_of_it(name: str) -> None:
    need("torch", "transformers")
    item = CONFIGURATIONS[name]
    pieces = meta.pieces(item.configuration)
    assert not isinstance(pieces, str), pieces
    assert sum(count for _, count, _ in pieces) == item.parameters

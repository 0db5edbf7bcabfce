"""The page of a plan: whole, closed to the outside, safe with any text, and readable on every theme."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import cycle
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from paddock.html.components import stylesheet
from paddock.plan.engine.values import SECRET, UNKNOWN
from paddock.plan.output.html import render
from tests.support import fleets
from tests.support.documents import NAMES, document, full, of, resource, seed
from tests.support.explore import examples

VOID = {"meta", "link", "input", "br"}


class Reader(HTMLParser):
    """Reads a page strictly: each element closes, ids are unique, links inside the page lead somewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not set(self.open) & {"script", "style"}:
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def check(page: str) -> Reader:
    reader = Reader(page)
    ids = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for name, attributes in reader.elements:
        assert "style" not in attributes
        assert not any(key.startswith("on") for key in attributes)
        assert "src" not in attributes
        target = attributes.get("href") or ""
        if name == "a":
            assert target.startswith(("#", "https://", "http://"))
        else:
            assert target.startswith(("#", "data:,")) or not target
        if target.startswith("#"):
            assert target[1:] in ids
    assert len(reader.all("script")) == len(reader.all("style")) == 1
    assert "url(h" not in page
    assert "@import" not in page
    return reader


@pytest.mark.parametrize("name", NAMES)
def test_every_fleet_has_a_whole_page_that_loads_nothing(name: str) -> None:
    page = render(of(name))
    words = check(page).words
    plan = of(name)
    for part in [*(pool.name for pool in plan.pools), *(runner.name for runner in plan.runners)]:
        assert part in words
    for runner in of(name).runners:
        assert f"runs-on: [{', '.join(runner.labels)}]" in words
    assert len(page.encode()) < 1_000_000


def test_the_worst_fleet_is_named_and_not_only_coloured() -> None:
    reader = check(render(full(seed())))
    words = reader.words
    assert "Not ready: 1 error" in words
    assert "\u2717 does not fit" in words
    assert re.search(r"lacks 265m of 4 CPU, 1352Mi of 16Gi memory", words)
    assert "2 stranded" in words
    assert "no runner uses this pool" in words
    assert "192 jobs" in words, "too many to draw are told by number"
    assert "48 drawn" in words
    assert "<script>alert(1)</script>" in words
    assert [f for f in reader.all("article") if f["aria-label"] == "pool idle"]


def test_a_large_fleet_stays_below_a_megabyte() -> None:
    kinds = [
        ["g4dn.xlarge", "g4dn.2xlarge"],
        ["g5.12xlarge"],
        ["g6.xlarge", "g6.4xlarge"],
        ["p4d.24xlarge"],
        ["g6e.12xlarge"],
    ]
    pools = {f"pool-{i}": {"instances": kinds[i % 5], "nodes": {"min": i % 3, "max": 3 + i}} for i in range(30)}
    runners = {
        f"runner-{i}-of-a-long-name": {"pool": f"pool-{i // 2}", "labels": ["self-hosted", f"r{i}"]} for i in range(60)
    }
    page = render(full(fleets.stack(fleets.fleet_data(pools=pools, runners=runners), "large")))
    assert len(page.encode()) < 1_000_000
    words = check(page).words
    assert all(name in words for name in (*pools, *runners))


def test_inputs_too_long_for_the_page_are_cut_with_a_note() -> None:
    inputs = {"policy": "x" * 3000}
    resources = [resource(urn=f"u{i}", name=f"n{i}", inputs=inputs) for i in range(400)]
    page = render(document(resources=resources))
    assert len(page.encode()) < 1_000_000
    assert "Inputs longer than 1500 characters are cut here" in check(page).words
    assert "1500 characters more" in page


def test_runners_of_a_pool_differ_in_colour() -> None:
    runners = {f"r{i}": {"pool": "t4" if i % 12 == 0 else "other"} for i in range(24)}
    pools = {
        "t4": {"instances": ["g4dn.xlarge"], "nodes": {"max": 2}},
        "other": {"instances": ["g5.xlarge"], "nodes": {"max": 2}},
    }
    page = render(full(fleets.stack(fleets.fleet_data(pools=pools, runners=runners), "colours")))
    card = page[page.index('aria-label="pool t4"') : page.index('aria-label="pool other"')]
    assert len(set(re.findall(r'class="swatch (c\d+)"', card))) == 2


def test_secrets_are_hidden_and_unknowns_marked() -> None:
    inputs = {"password": SECRET, "arn": UNKNOWN, "list": [1, None, True], "deep": {"a": [{"b": "c\nd"}], "e": {}}}
    parts = {"type": "aws:x/y:Y", "name": "it", "parent": "gone", "custom": True, "inputs": inputs}
    page = render(document(resources=[resource(**parts)]))
    assert "<mark>&lt;secret&gt;</mark>" in page
    assert "<mark>&lt;unknown&gt;</mark>" in page
    assert "[1, None, True]" in check(page).words
    assert "1 resource" in check(page).words


def test_findings_come_worst_first_with_their_fix() -> None:
    rows = [
        {"id": "A1", "severity": "info", "subject": "a", "message": "little", "fix": ""},
        {"id": "B1", "severity": "error", "subject": "b", "message": "broken", "fix": "mend it"},
    ]
    words = check(render(document(findings=rows))).words
    assert words.index("broken") < words.index("little")
    assert "Fix: mend it" in words


def test_steps_before_pulumi_up_are_listed_in_order() -> None:
    steps = [{"id": "CFG001", "subject": "a", "text": "Do <this>", "command": "run it"}]
    steps.append({"id": "CFG005", "subject": "b", "text": "Then that"})
    words = check(render(document(before_up=steps))).words
    assert words.index("Before pulumi up") < words.index("Do <this>") < words.index("run it") < words.index("Then that")
    assert "Ready, after 2 steps" in words


def test_costs_say_what_they_leave_out_and_where_they_are_from() -> None:
    words = check(render(of("prod"))).words
    for phrase in ("a month expected", "GitHub-hosted", "unpriced", "as of 20", "unknown", "What this assumes"):
        assert phrase in words


def test_quotas_are_held_against_what_a_new_account_has() -> None:
    rows = [
        {
            "name": "G on spot",
            "code": "L-1",
            "need": 80,
            "need_without_fallback": 40,
            "default": 0,
            "request": "aws ask",
        },
        {"name": "EIPs", "need": 3, "default": 5, "parts": [{"who": "nat", "amount": 3}]},
        {"name": "P", "need": 1, "default": None},
    ]
    words = check(render(document(quota=rows))).words
    for phrase in ("\u2717 ask for more", "40 without fallback", "aws ask", "within it", "nat 3", "unknown"):
        assert phrase in words


def test_a_suppressed_rule_gives_its_reason_and_end() -> None:
    rules = {
        "evaluated": [{"id": "PAD001", "title": "Kubernetes secrets are encrypted"}, {"id": "PAD002"}],
        "suppressed": [{"rule": "PAD013", "resource": "gpu-ami", "reason": "odd mirrors", "expires": "2027-01-31"}],
        "unseen": [{"rule": "PAD002", "subject": "cluster", "property": "logs"}],
    }
    findings = [{"id": "PAD002", "severity": "error", "subject": "x", "message": "y", "fix": "z"}]
    words = check(render(document(rules=rules, findings=findings))).words
    assert "2 rules evaluated, 1 hold, 1 broken, 1 suppression." in words
    for phrase in ("gpu-ami", "odd mirrors", "2027-01-31", "Not judged before the cloud has answered (1)"):
        assert phrase in words


def test_a_size_says_what_it_would_change() -> None:
    def option(instance: str, value: float | None) -> dict[str, Any]:
        price: dict[str, Any] = {"value": value, "unit": "USD/hour", "sources": [], "as_of": None, "missing": []}
        return {"instance": instance, "per_node": 1, "cpu_m": 3500, "memory_mib": 2048, "per_runner_hour": price}

    size = {"runner": "gpu", "current": option("g5.xlarge", 1.0), "cheapest": option("g6.xlarge", 0.8), "larger": None}
    words = check(render(document(right_size=[size]))).words
    assert "$0.80, -20%" in words
    assert "3.5 CPU, 2 GiB" in words


def test_parents_in_a_circle_lose_no_resource() -> None:
    ring = [resource(urn=f"u{i}", name=f"ring{i}", parent=f"u{(i + 1) % 3}") for i in range(3)]
    assert all(f"ring{i}" in check(render(document(resources=ring))).words for i in range(3))


def test_a_deep_tree_loses_no_resource() -> None:
    chain = [resource(urn=f"u{i}", name=f"link{i}.", parent=f"u{i - 1}") for i in range(60)]
    words = check(render(document(resources=chain))).words
    assert all(f"link{i}." in words for i in range(60))


TEXT = st.text(max_size=12) | st.sampled_from(
    ["<script>", "</script>", '"', "'", "&amp;", "\x00", "\ud800", "\u202e", "]]>", "<!--"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


FREE_TEXT = {
    "name", "subject", "message", "fix", "title", "note", "item", "what", "why", "who", "image", "request", "url",
}  # fmt: skip
"""Keys of a document that may hold any text."""


@examples(20, 100, suppress_health_check=list(HealthCheck))
@given(st.lists(TEXT.filter(lambda text: "\ud800" not in text), min_size=1, max_size=9), st.lists(JSON, max_size=3))
def test_no_text_breaks_the_page(texts: list[str], inputs: list[Any]) -> None:
    endless = cycle(texts)

    def replaced(value: Any) -> Any:
        match value:
            case dict():
                return {
                    key: next(endless) if key in FREE_TEXT and isinstance(item, str) else replaced(item)
                    for key, item in value.items()
                }
            case list():
                return [replaced(item) for item in value]
            case _:
                return value

    data = replaced({**of("dev").data(), "resources": [resource(inputs={"x": inputs}), resource(urn="v")]})
    page = render(document(**data))
    page.encode()
    check(page)


def _colours(css: str, dark: bool) -> dict[str, str]:
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", blocks[1 if dark else 0]))


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_drawings_stand_out_on_both_themes(dark: bool) -> None:
    css = stylesheet()
    colours = _colours(css, dark)

    def pairs() -> Iterator[tuple[str, str]]:
        for text in ("ink", "soft", "link", "bad", "warn", "good", "info"):
            yield from ((text, under) for under in ("page", "card"))
        yield from (("ink", "faint"), ("bad", "bad-bg"), ("warn", "warn-bg"), ("good", "good-bg"), ("soft", "faint"))

    for text, under in pairs():
        assert contrast(colours[text], colours[under]) >= 4.5, (text, under)
    runners = re.findall(r"\.c\d+ \{ --c: (#\w{6})", css)
    assert len(runners) == 12
    for runner in runners:
        assert contrast(runner, "#fff") >= 4.5
        assert contrast(runner, colours["card"]) >= 3
    for shape in ("use", "stripe", "dim", "bad"):
        assert contrast(colours[shape], colours["card"]) >= 3

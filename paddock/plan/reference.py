"""Write docs/rules.md from the registry of findings: `python -m paddock.plan.reference > docs/rules.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from paddock.catalog.faults import FILE, fault_sources, faults, settings
from paddock.catalog.limits import Limit, readings
from paddock.plan.findings import FAMILIES, FINDINGS
from paddock.plan.rules import BASELINE, CONSISTENCY, RENAMED, STALE
from paddock.plan.rules.base import Rule
from paddock.plan.rules.suppressions import EXAMPLE, LEAST_REASON

_HEAD = """# Rules and findings

`./inv plan` reports what it finds about a stack, each finding with an id of three letters and three digits. An error
fails the plan, a warning or a note does not; `--strict` and `--fail-on LEVEL[,ID...]` change that. A *step* is not a
finding: it is left to you before `pulumi up`. `./inv plan --explain ID[,ID...]` shows some of them in full, and
`./inv plan --fix` makes the fixes that are edits of the stack file. The first two families are rules about what
`pulumi up` would make.
The same rules run inside Pulumi, also on what components in other languages make:

```sh
pulumi preview --policy-pack policy
```

*Generated from `paddock/plan/rules` and `paddock/plan/findings.py`; edit the rule, not this page.*

## Accepting an exception

An exception is in the stack file, next to `paddock:fleet`:

```yaml
config:
  paddock:suppressions:
    - {example}
```

- `rule` is an id from this page; `resource` is the name that the finding gives, a URN, or the path of a file, and `*`
  stands for anything.
- `reason` says in at least {least} characters why it is acceptable; `expires` is the last day it holds, in quotes,
  a year from today at most.
- An unknown rule, a missing reason or day, and a day that has passed are mistakes in the stack file. A suppression that
  excuses nothing any more is an error of its own ({stale}): take it out.
- Older versions wrote ids with a dash (`PAD-08`). They are still read, with a warning ({renamed}).
"""


def page() -> str:
    """Return the text of docs/rules.md."""
    head = _HEAD.format(example=EXAMPLE, least=LEAST_REASON, stale=STALE, renamed=RENAMED)
    rules = f"\n## {FAMILIES['PAD']}\n\n{_table(BASELINE)}\n## {FAMILIES['CON']}\n\n{_table(CONSISTENCY)}"
    lists = (f"\n## {title}\n\n{_list(family)}" for family, title in FAMILIES.items() if family not in ("PAD", "CON"))
    return head + rules + "".join(lists) + _faults() + _settings() + _limits()


def _faults() -> str:
    """Return the known faults of versions, of which CMP011 speaks."""
    rows = [
        [
            fault.software,
            fault.since,
            fault.until or "",
            ", ".join((*fault.settings, *fault.families, *fault.used_with)),
            fault.breaks,
            _source(fault.source),
        ]
        for fault in faults()
    ]
    head = ["software", "from", "up to, not including", "with", "what breaks", "source"]
    return f"\n## Known faults of versions\n\nCMP011 and CMP009 report them, from `{FILE}`.\n\n{_rows(head, rows)}"


def _settings() -> str:
    """Return which version follows a setting first, of which CMP012 speaks."""
    rows = [[row.setting, row.software, row.since, row.without, _source(row.source)] for row in settings() if row.since]
    head = ["setting", "software", "from", "without it", "source"]
    return f"\n## Settings and the versions that follow them\n\nCMP012 reports what is older.\n\n{_rows(head, rows)}"


def _limits() -> str:
    """Return the limits by which a stack file or a plan is refused."""
    rows = [
        [
            row.key,
            f"{row.value} {row.unit}" if isinstance(row, Limit) else "",
            row.what,
            f"[{source.name}]({source.url}), {source.as_of}",
        ]
        for row, source in readings()
    ]
    intro = "A stack file or a plan beyond one of them is refused. Quotas that AWS raises are in `./inv doctor`."
    return f"\n## Limits of AWS and of others\n\n{intro}\n\n{_rows(['limit', 'value', 'what', 'source, read'], rows)}"


def _source(key: str) -> str:
    source = fault_sources()[key]
    return f"[{key}]({source.url}), {source.as_of}"


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [head, ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def _list(family: str) -> str:
    kinds = [kind for kind in FINDINGS.values() if kind.id.startswith(family)]
    rows = [
        "| id | severity | finding | reported by |",
        "|---|---|---|---|",
        *(f"| {kind.id} | {kind.severity} | {_cell(kind.title)} | `paddock.plan.{kind.where}` |" for kind in kinds),
    ]
    return "\n".join(rows) + "\n"


def _table(rules: Iterable[Rule]) -> str:
    rows = [
        "| id | severity | what holds | why | fix | equivalents |",
        "|---|---|---|---|---|---|",
        *(
            f"| {rule.id} | {rule.severity} | {_cell(rule.title)} | {_cell(rule.why)} | {_cell(rule.fix)} "
            f"| {', '.join(rule.equivalents)} |"
            for rule in rules
        ),
    ]
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(page())

"""docs/rules.md, written from the rules themselves: `python -m paddock.plan.rules.reference > docs/rules.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from paddock.plan.rules import BASELINE, CONSISTENCY, STALE
from paddock.plan.rules.base import Rule
from paddock.plan.rules.suppressions import EXAMPLE, LEAST_REASON

_HEAD = """# Rules

`inv plan` holds every rule below against what `pulumi up` would make. An error fails the plan,
a warning or a note does not.
The same rules run inside Pulumi, also on what components in other languages make:

```sh
pulumi preview --policy-pack policy
```

*Generated from `paddock/plan/rules`; edit the rule, not this page.*

## Accepting an exception

An exception stands in the stack file, beside `paddock:fleet`:

```yaml
config:
  paddock:suppressions:
    - {example}
```

- `rule` is an id from this page; `resource` is the name that the finding gives, a URN, or the path of a file, and `*`
  stands for anything.
- `reason` says in at least {least} characters why it is acceptable; `expires` is the last day it holds, in quotes.
- An unknown rule, a missing reason or day, and a day that has passed are mistakes in the stack file. A suppression that
  excuses nothing any more is an error of its own ({stale}): take it out.
"""


def page() -> str:
    head = _HEAD.format(example=EXAMPLE, least=LEAST_REASON, stale=STALE)
    return f"{head}\n## Safety\n\n{_table(BASELINE)}\n## Consistency\n\n{_table(CONSISTENCY)}"


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

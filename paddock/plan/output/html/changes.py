"""Changes since another plan: what they cost, what was renamed, and what becomes of each resource."""

from __future__ import annotations

from paddock.plan.diff.model import Diff
from paddock.plan.output import changes
from paddock.plan.output.html import markup
from paddock.plan.output.html.markup import Html, table, tag


def section(diff: Diff) -> Html:
    """Return the changes: in one sentence, in money, and each one folded below."""
    refused = [tag("li", f"Refused: {line}", class_="bad") for line in diff.refused]
    renames = [tag("li", f"Renamed {changes.renamed(rename)}") for rename in diff.renames]
    notes = [tag("li", note, class_="note") for note in diff.notes]
    costs = changes.cost_table(diff.cost)
    columns = [(name, "n" if index else "") for index, name in enumerate(changes.COST_COLUMNS)]
    return markup.section(
        "changes",
        "Changes",
        tag("p", changes.headline(diff)),
        tag("ul", refused, renames, notes) if refused or renames or notes else None,
        table("Cost before and after", columns, costs) if costs else None,
        [_folded(title, content) for title, content in changes.details(diff)],
    )


def _folded(title: str, content: changes.Table | changes.Blocks) -> Html:
    if isinstance(content, changes.Table):
        columns = [(name, "wide" if name in ("message", "why", "so") else "") for name in content.columns]
        inside = table(title, columns, content.rows, hide_caption=True)
    else:
        inside = tag("pre", "\n".join(line for block in content for line in block))
    return tag("details", tag("summary", title), inside, class_="more")

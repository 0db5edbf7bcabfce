"""The page that reports share: its style, tables and lists. One HTML file that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from paddock.bench.report import charts

STYLE = """
:root{color-scheme:light dark;--ink:#1b2430;--soft:#5b6675;--line:#dde2e9;--paper:#fff;--good:#1f7a4d;--bad:#b3261e;
--c0:#2f6fd6;--c1:#d9762b;--c2:#2a9461;--c3:#8a56c9;--c4:#cf4150;--c5:#128b99}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b5;--line:#333c48;--paper:#14191f;--good:#58c08a;
--bad:#ff8a80;--c0:#6ea1f5;--c1:#f0a05f;--c2:#5fc594;--c3:#b891ea;--c4:#f2848f;--c5:#58c1cd}}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:62rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.6rem;line-height:1.25;margin:0}h2{font-size:1.1rem;margin:2.4rem 0 .6rem}p{margin:.3rem 0}
.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:1rem;margin-top:1.4rem}
.figures div{border:1px solid var(--line);border-radius:.5rem;padding:.7rem .9rem}
.figures b{display:block;font-size:1.5rem;line-height:1.2}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.35rem .7rem .35rem 0;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:600;color:var(--soft)}li{margin:.2rem 0}pre{overflow-x:auto;font-size:.8rem}
@media print{body{font-size:12px}main{max-width:none;padding:0}h2{break-after:avoid}svg,table{break-inside:avoid}}
"""


def whole(title: str, body: Iterable[str]) -> str:
    """Return the whole page."""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{text(title)}</title><style>{STYLE}{charts.STYLE}</style><main>{''.join(body)}</main></html>\n"
    )


def figures(cells: Iterable[tuple[str, str, str]]) -> str:
    """Return the numbers that matter most: a value, what it is and what it is of."""
    parts = (
        f"<div><b>{text(value)}</b>{text(label)}<br><span class=soft>{text(of)}</span></div>"
        for value, label, of in cells
    )
    return f"<div class=figures>{''.join(parts)}</div>"


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{text(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def section(title: str, content: str, note: str = "") -> str:
    under = f"<p class=soft>{text(note)}</p>" if note else ""
    return f"<h2>{text(title)}</h2>{content}{under}"


def listed(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{text(item)}</li>' for item in items)}</ul>" if items else "<p>None.</p>"


def text(value: str) -> str:
    return html.escape(value)

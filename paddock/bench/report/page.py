"""The page: one HTML file with plots, that needs nothing else."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence

from paddock.bench.report.model import BenchDocument, Result
from paddock.bench.report.text import name, percent, tail

_STYLE = """
:root{color-scheme:light dark;--ink:#1b2430;--soft:#5b6675;--line:#dde2e9;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b5;--line:#333c48;--paper:#14191f}}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:62rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.6rem;margin:0}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}p{margin:.3rem 0}.soft{color:var(--soft)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:1rem;margin-top:1.4rem}
.figures div{border:1px solid var(--line);border-radius:.5rem;padding:.7rem .9rem}
.figures b{display:block;font-size:1.5rem;line-height:1.2}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:600;color:var(--soft)}li{margin:.2rem 0}pre{overflow-x:auto;font-size:.8rem}
svg{width:100%;height:auto;font:12px system-ui,sans-serif}svg text{fill:currentColor}svg .soft{opacity:.65}
"""
_WIDTH, _ROW, _LABEL, _VALUE = 920, 30, 320, 170
"""Pixels: of a plot, a row of it, the label before a bar and the value behind it."""


def page(document: BenchDocument) -> str:
    """Return the document as HTML."""
    model, device = document.model, document.device
    title = f"{model['name']} on {device['name']}"
    body = [
        f"<h1>{_text(title)}</h1>",
        f"<p class=soft>{model['parameters'] / 1e9:.2f} B parameters, weights {_text(str(model['weights']))}; "
        f"engine {_text(document.engine)}; {_text(document.taken_at)}"
        f"{'' if document.complete else '; <b>interrupted, incomplete</b>'}</p>",
    ]
    if document.results:
        best = max(document.results, key=lambda result: result.tokens_per_s)
        body += [
            _figures(best),
            _section("Decode speed against the roof", _speeds(document.results)),
            _section("Gaps between tokens", _gaps(document.results)),
            _section("Results", _table(document.results)),
            _section("What a million tokens cost", _costs(best)),
        ]
    trust = [
        f"{name(result)}, batch {result.key['batch']}: {doubt}"
        for result in document.results
        for doubt in result.doubts
    ]
    trust += [f"{problem.dtype}: {problem.message}" for problem in document.problems]
    body.append(_section("Reasons for doubt", _list(trust) if trust else "<p>None: steps were steady.</p>"))
    body.append(_section("Notes", _list([*document.notes, *_kernels(document.results)])))
    environment = json.dumps(document.environment, indent=2)
    details = f"<details><summary>What makes it repeatable</summary><pre>{_text(environment)}</pre></details>"
    body.append(_section("Environment", details))
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{_text(title)}</title><style>{_STYLE}</style><main>{''.join(body)}</main></html>\n"
    )


def _figures(best: Result) -> str:
    cost = best.cost[0] if best.cost else None
    figures = [
        (f"{best.tokens_per_s:.1f}", "tokens/s decoding", f"{name(best)}, batch {best.key['batch']}"),
        (percent(best.roofline.of_measured), "of the measured roof", f"{best.roofline.achieved_gbs:.1f} GB/s"),
        (f"{best.ttft.median:.0f} ms", "to the first token", f"prompt of {best.key['prompt']}"),
        (
            f"${cost.usd_per_million:.2f}" if cost else "unknown",
            "a million tokens",
            (cost.instance if cost.measured else f"as if on {cost.instance}") if cost else "no price",
        ),
    ]
    cells = (
        f"<div><b>{_text(value)}</b>{_text(label)}<br><span class=soft>{_text(of)}</span></div>"
        for value, label, of in figures
    )
    return f"<div class=figures>{''.join(cells)}</div>"


def _speeds(results: Sequence[Result]) -> str:
    """Return a bar a result, before that of the roof that the same bytes allow."""
    roofs = [
        result.tokens_per_s / result.roofline.of_measured if result.roofline.of_measured else result.tokens_per_s
        for result in results
    ]
    scale = (_WIDTH - _LABEL - _VALUE) / max(*roofs, *(result.tokens_per_s for result in results), 1e-9)
    rows = []
    for number, (result, roof) in enumerate(zip(results, roofs, strict=True)):
        y = number * _ROW
        label = f"{name(result)}, batch {result.key['batch']}, prompt {result.key['prompt']}"
        width = max(roof, result.tokens_per_s) * scale
        rows.append(
            f"<text x=0 y={y + 19}>{_text(label)}</text>"
            f"<rect fill='#8a97ab' fill-opacity='.35' x={_LABEL} y={y + 5} width={roof * scale:.1f} height=20 rx=3 />"
            f"<rect fill='#3d7be0' x={_LABEL} y={y + 9} width={result.tokens_per_s * scale:.1f} height=12 rx=2 />"
            f"<text x={_LABEL + width + 8:.1f} y={y + 19}>{result.tokens_per_s:.1f}"
            f" <tspan class=soft>of {roof:.0f} tokens/s</tspan></text>"
        )
    note = "<p class=soft>Behind each bar: what the bandwidth that was measured beside it allows.</p>"
    return _svg("Decode speed of each result and its roof", len(results) * _ROW + 4, rows) + note


def _gaps(results: Sequence[Result]) -> str:
    """Return the range of gaps of each result: from the least to the largest, and the median."""
    scale = (_WIDTH - _LABEL - _VALUE) / max(*(result.gaps.maximum for result in results), 1e-9)
    rows = []
    for number, result in enumerate(results):
        y, gaps = number * _ROW + 15, result.gaps
        x = [_LABEL + value * scale for value in (gaps.minimum, gaps.median, gaps.maximum)]
        rows.append(
            f"<text x=0 y={y + 4}>{_text(name(result))}, batch {result.key['batch']}</text>"
            f"<line stroke='#8a97ab' x1={x[0]:.1f} x2={x[2]:.1f} y1={y} y2={y} stroke-width=4 />"
            f"<circle fill='#3d7be0' cx={x[1]:.1f} cy={y} r=5 />"
            f"<text x={x[2] + 10:.1f} y={y + 4}>{gaps.median:.1f} ms"
            f" <tspan class=soft>to {gaps.maximum:.1f}</tspan></text>"
        )
    note = "<p class=soft>Dot: median; line: from the shortest gap to the longest.</p>"
    return _svg("Gaps between tokens", len(results) * _ROW + 4, rows) + note


def _table(results: Sequence[Result]) -> str:
    headings: tuple[str, ...] = (
        "dtype",
        "batch",
        "prompt",
        "tokens/s",
        "TTFT ms",
        "TPOT ms",
        "gap p99 ms",
        "prefill tokens/s",
    )
    headings += ("memory GB", "of measured roof", "of data sheet", "J/token", "logit error")
    rows = [
        (
            name(result),
            str(result.key["batch"]),
            str(result.key["prompt"]),
            f"{result.tokens_per_s:.1f}",
            f"{result.ttft.median:.1f}",
            f"{result.tpot.median:.2f}",
            tail(result.gaps),
            f"{result.prefill_tokens_per_s:.0f}",
            f"{result.memory_bytes / 1e9:.2f}",
            percent(result.roofline.of_measured),
            percent(result.roofline.of_datasheet),
            "unknown" if result.energy is None else f"{result.energy.joules_per_token:.2f}",
            "" if result.quality is None else f"{result.quality.logit_error:.1%}",
        )
        for result in results
    ]
    return _grid(headings, rows)


def _costs(best: Result) -> str:
    if not best.cost:
        return "<p>The catalogue has no price for this machine.</p>"
    rows = [
        (
            cost.instance,
            f"${cost.usd_per_million:.2f}",
            f"{cost.tokens_per_s:.0f}",
            f"${cost.usd_per_hour:g}",
            "measured here" if cost.measured else "assumed",
            f"{cost.source}, {cost.as_of or 'undated'}",
        )
        for cost in best.cost
    ]
    note = "At full use; at half use a token costs twice as much. Assumed speeds follow memory bandwidth."
    headings = ("instance", "a million tokens", "tokens/s", "an hour", "speed", "price")
    return f"{_grid(headings, rows)}<p class=soft>{note}</p>"


def _kernels(results: Sequence[Result]) -> list[str]:
    return [
        f"{label}: {kernel}" for label, kernel in dict.fromkeys((name(result), result.kernel) for result in results)
    ]


def _grid(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{_text(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def _section(title: str, content: str) -> str:
    return f"<h2>{_text(title)}</h2>{content}"


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(item)}</li>' for item in items)}</ul>" if items else "<p>None.</p>"


def _svg(label: str, height: int, rows: Iterable[str]) -> str:
    return f"<svg role=img aria-label='{_text(label)}' viewBox='0 0 {_WIDTH} {height}'>{''.join(rows)}</svg>"


def _text(value: str) -> str:
    return html.escape(value)

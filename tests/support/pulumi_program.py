"""A program called pulumi that asks the stand-in of a test over HTTP what it did, and prints that as Pulumi does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from paddock.pulumi_cli.stack import PulumiError, Run
from tests.support.engine_stand_in import StandInForPulumi
from tests.support.http_server import Handler, serving

_PROGRAM = """\
#!{python}
import json, sys, urllib.request
request = urllib.request.Request("{url}", json.dumps(sys.argv[1:]).encode())
try:
    answer = json.load(urllib.request.urlopen(request))
except KeyboardInterrupt:
    sys.exit("error: interrupted")
sys.stdout.write(answer["out"])
sys.stderr.write(answer["err"])
sys.exit(answer["code"])
"""


@contextmanager
def program(engine: StandInForPulumi) -> Iterator[str]:
    """Yield the text of the program, whose runs are those of the stand-in."""

    class Requests(Handler):
        def do_POST(self) -> None:
            self.send(200, _answer(engine, json.loads(self.body())))

    with serving(Requests) as url:
        yield _PROGRAM.format(python=sys.executable, url=url)


def _answer(engine: StandInForPulumi, words: list[str]) -> Mapping[str, Any]:
    if words[:2] == ["stack", "export"]:
        resources = [
            {
                "urn": item.urn, "type": item.type, "id": item.id, "protect": item.protect,
                "retainOnDelete": item.retained, "inputs": dict(item.inputs),
            }
            for item in engine.resources()
        ]  # fmt: skip
        return {"out": json.dumps({"deployment": {"resources": resources}}), "err": "", "code": 0}
    try:
        return {"out": _lines(_run(engine, words)), "err": "", "code": 0}
    except PulumiError as error:
        return {"out": _lines(error.run) if error.run else "", "err": f"error: {error}\n", "code": 255}


def _run(engine: StandInForPulumi, words: list[str]) -> Run:
    def values(flag: str) -> list[str]:
        return [words[number + 1] for number, word in enumerate(words) if word == flag]

    if words[0] == "preview":
        return engine.preview()
    if words[0] == "up":
        return engine.up(print, targets=values("--target"), replace=values("--replace"))
    protected = "--ignore-protect" in words
    if "--preview-only" in words:
        return engine.preview_destroy(exclude=values("--exclude"), protected=protected)
    return engine.destroy(print, targets=values("--target"), exclude=values("--exclude"), protected=protected)


def _lines(run: Run) -> str:
    events = ({"resOutputsEvent": {"metadata": {"op": step.operation, "urn": step.urn}}} for step in run.steps)
    said = ({"diagnosticEvent": asdict(diagnostic)} for diagnostic in run.diagnostics)
    return "".join(f"{json.dumps(event)}\n" for event in (*events, *said))

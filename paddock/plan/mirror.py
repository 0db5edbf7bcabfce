"""Charts and images to copy into a mirror: `inv mirror` writes the commands.

It needs what `inv plan` needs: neither credentials nor a network.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from json import dumps, loads
from pathlib import Path, PurePosixPath

from infra.helm.charts import CHARTS, Chart
from paddock.fleet import Mirror, Stack, load
from paddock.fleet.model.mirror import is_folder
from paddock.fleet.stackfile.configuration import FLEET
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.resource_types import RELEASE
from paddock.plan.rules.base import Context
from paddock.plan.rules.inputs.pods import chart
from paddock.plan.rules.mirror import images as pulled
from paddock.terminal import NO_JSON, JsonOutput


def images(graph: Graph) -> tuple[str, ...]:
    """Names of all images that a graph's pods and charts pull, sorted.

    Without those of EKS's add-ons and AMIs, and those that workflows name.
    """
    return tuple(sorted({pull.image for pull in pulled(Context(graph))}))


def charts(graph: Graph) -> tuple[Chart, ...]:
    """Return all charts that a graph installs, sorted by name."""
    return tuple(CHARTS[name] for name in sorted({chart(release) for release in graph.of_type(RELEASE)}))


def commands(stack: Stack) -> Iterator[str]:
    """Shell commands that copy what the stack pulls from its makers to where its mirror says; comments where nowhere.

    Raises PlanError.
    """
    mirror, graph = stack.fleet.mirror, plan_graph(_without_mirror(stack))
    for chart_ in charts(graph):
        yield _chart(chart_, mirror)
    for name in images(graph):
        copy = mirror.image(name)
        yield f"crane copy {name} {copy}" if copy != name else f"# {name}: not from a mirror"


def _chart(chart: Chart, mirror: Mirror) -> str:
    target = mirror.chart(chart.name, chart.version)
    if target is None:
        return f"# {chart.pull}: not from a mirror"
    if is_folder(target):
        return f"{chart.pull} --destination {shlex.quote(str(PurePosixPath(target).parent))}"
    if target.startswith("oci://"):
        return f"{chart.pull} && helm push {chart.name}-{chart.version}.tgz {target.rpartition('/')[0]}"
    return f"{chart.pull}  # and add it to the repository {target}"


def _without_mirror(stack: Stack) -> Stack:
    fleet = {key: value for key, value in loads(stack.config[FLEET]).items() if key != "mirror"}
    return replace(stack, config={**stack.config, FLEET: dumps(fleet)})


def show(root: Path, name: str, *, json: JsonOutput = NO_JSON) -> None:
    """Print the commands, or what they copy and where to. Raises FleetError and PlanError."""
    stack = load(root, name)
    if not json.replaces_text:
        sys.stdout.writelines(f"{command}\n" for command in commands(stack))
    if json.path is None:
        return
    mirror, graph = stack.fleet.mirror, plan_graph(_without_mirror(stack))
    copies = {
        "charts": [
            {"name": chart.name, "version": chart.version, "to": mirror.chart(chart.name, chart.version)}
            for chart in charts(graph)
        ],
        "images": [
            {"from": image, "to": None if mirror.image(image) == image else mirror.image(image)}
            for image in images(graph)
        ],
    }
    json.write(copies)

"""What to copy into a mirror: `python -m paddock.plan.mirror --stack prod` writes the commands.

It needs what `inv plan` needs: neither credentials nor a network.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from infra.charts import CHARTS, Chart
from paddock.fleet import FleetError, Mirror, Stack, load
from paddock.fleet.loader import FLEET
from paddock.fleet.mirror import is_folder
from paddock.plan.graph import Graph, PlanError
from paddock.plan.rules.base import Context
from paddock.plan.rules.mirror import images as pulled
from paddock.plan.rules.pods import RELEASE, chart
from paddock.plan.run import plan_graph


def images(graph: Graph) -> tuple[str, ...]:
    """Names of all images that a graph's pods and charts pull, sorted.

    Without those of EKS's add-ons and AMIs, and those that workflows name.
    """
    return tuple(sorted({found.image for found in pulled(Context(graph))}))


def charts(graph: Graph) -> tuple[Chart, ...]:
    """All charts that a graph installs, sorted by name."""
    return tuple(CHARTS[name] for name in sorted({chart(release) for release in graph.of_type(RELEASE)}))


def commands(stack: Stack) -> Iterator[str]:
    """Shell commands that copy what the stack pulls from its makers to where its mirror says; comments where nowhere.

    Raises PlanError.
    """
    mirror, graph = stack.fleet.mirror, plan_graph(_without_mirror(stack))
    for known in charts(graph):
        yield _chart(known, mirror)
    for name in images(graph):
        copy = mirror.image(name)
        yield f"crane copy {name} {copy}" if copy != name else f"# {name}: not from a mirror"


def _chart(known: Chart, mirror: Mirror) -> str:
    target = mirror.chart(known.name, known.version)
    if target is None:
        return f"# {known.pull}: not from a mirror"
    if is_folder(target):
        return f"{known.pull} --destination {shlex.quote(str(PurePosixPath(target).parent))}"
    if target.startswith("oci://"):
        return f"{known.pull} && helm push {known.name}-{known.version}.tgz {target.rpartition('/')[0]}"
    return f"{known.pull}  # and add it to the repository {target}"


def _without_mirror(stack: Stack) -> Stack:
    fleet = {key: value for key, value in json.loads(stack.config[FLEET]).items() if key != "mirror"}
    return replace(stack, config={**stack.config, FLEET: json.dumps(fleet)})


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m paddock.plan.mirror", description=__doc__)
    parser.add_argument("--stack", default="dev", help="stack whose charts and images to copy (default: dev)")
    try:
        for command in commands(load(Path.cwd(), parser.parse_args(arguments).stack)):
            sys.stdout.write(f"{command}\n")
    except (FleetError, PlanError) as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

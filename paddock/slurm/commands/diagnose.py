"""`slurm.configure --diagnose`: every link, and the first broken one with its fix."""

from __future__ import annotations

from pathlib import Path

from paddock.console.output import JsonOutput, say
from paddock.errors import program
from paddock.gpu.drivers.diagnosis import find_traces
from paddock.images.docker import Docker
from paddock.slurm.detect.engine import Engine
from paddock.slurm.detect.machine import Detection
from paddock.slurm.diagnose.chain import chain
from paddock.slurm.diagnose.node_state import node_state
from paddock.slurm.programs.names import container_name
from paddock.slurm.validate.host import host_links
from paddock.slurm.validate.link import Link, broken

LEFT_OUT = "they are left out by --gpu-type none"
"""Reason in an inventory without the machine's GPUs."""


def diagnose(detection: Detection, docker: Docker, engine: Engine, prefix: str, image: str, json: JsonOutput) -> int:
    """Print the links and return 1 where one is broken. Raises BuildError where Docker does not answer."""
    root = Path("/")
    hardware = detection.inventory.reason != LEFT_OUT and bool(find_traces(root))
    node = node_state(docker, container_name(prefix), image)
    links: list[Link] = []
    for link in chain(detection, host_links(detection, engine, root), node, prefix, hardware=hardware):
        links.append(link)
        say(json, link.line())
    first = broken(links)
    json.write(
        {"schema": 1, "links": [link.document() for link in links], "broken": first.document() if first else None}
    )
    say(json, *(f"warning: {link.name}: {link.fix}" for link in links if link.state == "warning" and link.fix), "")
    if first:
        say(json, f"broken: {first.name}: {first.evidence}", f"  fix: {first.fix}")
    else:
        say(json, f"nothing is broken; {program()} slurm.test runs a job on every GPU")
    return 1 if first else 0

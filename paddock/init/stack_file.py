"""Text of a new stack file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from paddock import fleet
from paddock.errors import program
from paddock.fleet.model.cluster import KUBERNETES
from paddock.fleet.stackfile import configuration
from paddock.fleet.stackfile.configuration import FLEET, REGION
from paddock.init.answers import EXAMPLE_IDS, Answers
from paddock.init.gpu_choice import Choice
from paddock.init.moving import stack
from paddock.init.moving.model import Fleet

_TEMPLATE = """\
# yaml-language-server: $schema=docs/fleet.schema.json
# {heading}, bought while jobs wait. Every key: docs/configuration.md
config:
  aws:region: {region}
  paddock:fleet:
    github:
      url: {url}
{app}
    cluster:
      version: "{kubernetes}"
{endpoint}
"""

_FIRST = """\
    pools:
      {pool}:
        instances: [{instances}]
        capacity: {capacity}
        nodes: {{max: {nodes}}}
    runners:
      gpu:                       # a workflow says runs-on: [self-hosted, gpu]
        pool: {pool}
        labels: [self-hosted, linux, x64, gpu, {pool}]
"""

_PUSH = """\
    images:
      push: {{repository: {push}}}   # its main branch builds images: docs/workflows.md
"""


def text(answers: Answers, root: Path, moved: Fleet | None = None) -> str:
    """Return the file, for runners of another program where these are given.

    Raises FleetError where the answers make no fleet, which a checked answer should not.
    """
    choice = answers.choice
    heading = f"GPUs for the runners of {moved.program}" if moved else f"{choice.gpu.name} GPUs"
    head = _TEMPLATE.format(
        heading=f"{heading} at {answers.github.url}" if moved else f"{heading} for {answers.github.url}",
        url=answers.github.url,
        region=answers.region,
        app=_app(answers),
        kubernetes=KUBERNETES,
        endpoint=_endpoint(answers.allow),
    )
    images = _PUSH.format(push=answers.push) if answers.push else ""
    config: dict[str, Any] = yaml.safe_load(head)["config"]
    project = configuration.project_name(root, configuration.read_document(root / "Pulumi.yaml"))

    def parsed(keys: dict[str, Any]) -> fleet.Fleet:
        whole = json.dumps(config[FLEET] | keys)
        return fleet.parse({REGION: config[REGION], FLEET: whole}, project, answers.stack)

    written = head + (stack.parts(moved, choice, parsed) if moved else _first(choice)) + images
    parsed(yaml.safe_load(written)["config"][FLEET])
    return written


def _first(choice: Choice) -> str:
    """Return the pool and the runner of a first fleet."""
    capacity = "on-demand"
    if choice.on_spot:
        capacity = "spot\n        fallback: on-demand      # bought when there is no spot"
    return _FIRST.format(
        pool=choice.gpu.key,
        instances=", ".join(instance.name for instance in choice.types),
        capacity=capacity,
        nodes=choice.nodes,
    )


def _app(answers: Answers) -> str:
    app_id, installation = answers.app_id or EXAMPLE_IDS[0], answers.installation or EXAMPLE_IDS[1]
    later = not (answers.app_id and answers.installation)
    comment = f"   # an example's: {program()} init.github --url {answers.github.url}" if later else ""
    return f'      app: {{id: "{app_id}", installation: "{installation}"}}{comment}'


def _endpoint(allow: tuple[str, ...]) -> str:
    if not allow:
        return "      endpoint: {allow: []}      # the Kubernetes API answers only inside the VPC, also to pulumi up"
    return f"      endpoint: {{allow: [{', '.join(allow)}]}}   # who reaches the Kubernetes API"

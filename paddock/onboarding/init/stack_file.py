"""Text of a new stack file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from paddock.errors import program
from paddock.fleet import parse
from paddock.fleet.model.cluster import KUBERNETES
from paddock.fleet.stackfile import configuration
from paddock.fleet.stackfile.configuration import FLEET, REGION
from paddock.onboarding.init.answers import EXAMPLE_IDS, Answers

_TEMPLATE = """\
# yaml-language-server: $schema=docs/fleet.schema.json
# {name} GPUs for {url}, bought while jobs wait. Every key: docs/configuration.md
config:
  aws:region: {region}
  paddock:fleet:
    github:
      url: {url}
{app}
    cluster:
      version: "{kubernetes}"
{endpoint}
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


def text(answers: Answers, root: Path) -> str:
    """Return the file. Raises FleetError where the answers make no fleet, which a checked answer should not."""
    choice = answers.choice
    capacity = "on-demand"
    if choice.on_spot:
        capacity = "spot\n        fallback: on-demand      # bought when there is no spot"
    written = _TEMPLATE.format(
        name=choice.gpu.name,
        url=answers.github.url,
        region=answers.region,
        app=_app(answers),
        kubernetes=KUBERNETES,
        endpoint=_endpoint(answers.allow),
        pool=choice.gpu.key,
        instances=", ".join(instance.name for instance in choice.types),
        capacity=capacity,
        nodes=choice.nodes,
    )
    if answers.push:
        written += _PUSH.format(push=answers.push)
    config: dict[str, Any] = yaml.safe_load(written)["config"]
    project = configuration.project_name(root, configuration.read_document(root / "Pulumi.yaml"))
    parse({REGION: config[REGION], FLEET: json.dumps(config[FLEET])}, project, answers.stack)
    return written


def _app(answers: Answers) -> str:
    app_id, installation = answers.app_id or EXAMPLE_IDS[0], answers.installation or EXAMPLE_IDS[1]
    later = not (answers.app_id and answers.installation)
    comment = f"   # an example's: {program()} github.app --url {answers.github.url}" if later else ""
    return f'      app: {{id: "{app_id}", installation: "{installation}"}}{comment}'


def _endpoint(allow: tuple[str, ...]) -> str:
    if not allow:
        return "      endpoint: {allow: []}      # the Kubernetes API answers inside the VPC alone, also to pulumi up"
    return f"      endpoint: {{allow: [{', '.join(allow)}]}}   # who reaches the Kubernetes API"

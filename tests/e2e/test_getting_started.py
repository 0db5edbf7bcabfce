"""docs/getting-started.md from its first command to its last: the real engine, a real Kubernetes API, no cloud."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from paddock.fleet import load
from paddock.lab import github
from paddock.lab.control_plane.servers import Lab
from paddock.lab.processes import MARK
from paddock.lab.providers.aws_command import KUBECONFIG
from paddock.lab.providers.server import STORE
from paddock.lab.providers.store import Store
from paddock.lab.simulators import arc, nodes
from paddock.lab.stack import charts
from paddock.lab.stack.engine import Programs
from paddock.plan.engine.program import plan_graph
from tests.support import cloud_programs
from tests.support.engine import lab_in
from tests.support.pages import Command, steps
from tests.support.walk import ROOT, Walk, program

pytestmark = pytest.mark.e2e
PAGE = ROOT / "docs/getting-started.md"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    yield from lab_in(tmp_path_factory.mktemp("lab"))


def test_the_page_works_from_the_first_command_to_the_last(lab: Lab, tmp_path: Path) -> None:
    hub = github.start(lab)
    arc.start(lab, hub)
    store = tmp_path / "cloud.json"
    walk = _walk(lab, tmp_path, hub, store)
    applied = False
    for step in steps(PAGE):
        if isinstance(step, Command) and step.mark == "not run":
            continue
        if isinstance(step, Command) and step.text.startswith("pulumi up") and not applied:
            _keep_on_this_machine(lab, walk, hub)
            applied = True
        walk.take(step)

    assert applied
    assert [job["result"] for job in github.Control(hub).jobs()] == ["succeeded"]
    assert Store(store).resources() == {}
    assert not (walk.project / "Pulumi.ci.yaml").exists()


def _walk(lab: Lab, folder: Path, hub: str, store: Path) -> Walk:
    """Return a walk whose providers, `aws` and `gh` are stand-ins; Pulumi, Kubernetes and kubectl are the real ones."""
    programs = Programs.find()
    assert programs.kubernetes  # or the lab would have been skipped
    plugins = {"kubernetes": programs.kubernetes.parent}
    for name in ("aws", "eks"):
        plugins[name] = folder / "plugins" / name
        start = f"PYTHONPATH='{ROOT}' exec '{sys.executable}' -u -m paddock.lab.providers.{name}"
        program(plugins[name] / f"pulumi-resource-{name}", start)
    for name in ("aws", "gh"):
        start = f"PYTHONPATH='{ROOT}' exec '{sys.executable}' -m tests.support.cloud_programs {name}"
        program(folder / "bin" / name, start)
    path = [str(folder / "bin"), f"{sys.prefix}/bin", str(programs.language_host.parent), os.environ["PATH"]]
    walk = Walk(
        folder,
        {
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(ROOT),
            MARK: str(folder),
            STORE: str(store),
            KUBECONFIG: str(lab.kubeconfig),
            cloud_programs.GITHUB: hub,
            "PULUMI_HOME": str(folder / "pulumi"),  # by itself Pulumi asks the system for the user's home, not HOME
            "PULUMI_SKIP_CONFIRMATIONS": "true",  # nobody is here to be asked
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        },
    )
    (walk.project / ".venv").symlink_to(sys.prefix)
    walk.configure_project(
        plugins={"providers": [{"name": name, "path": str(where)} for name, where in plugins.items()]}
    )
    return walk


def _keep_on_this_machine(lab: Lab, walk: Walk, hub: str) -> None:
    """Change in the stack file what would lead out of the machine, as the lab does: GitHub, and where charts are."""
    stack = load(walk.project, "ci")
    folder = lab.folder / "charts"
    charts.serve(folder, charts.required_charts(plan_graph(stack)), None)
    nodes.start(lab, stack, boot_seconds=1.0)
    written = yaml.safe_load(stack.path.read_text())
    fleet = written["config"]["paddock:fleet"]
    fleet["mirror"] = {"charts": str(folder)}
    fleet["github"] |= {"url": f"{hub}/acme", "serverVersion": "3.21"}
    stack.path.write_text(yaml.safe_dump(written, sort_keys=False))

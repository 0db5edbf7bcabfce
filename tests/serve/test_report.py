"""What a machine reports when it joins: its name, its label, and the backends that its llama.cpp cannot use."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.gpu.inventory import inventory
from paddock.gpu.model import Inventory
from paddock.serve.agents import this_machine as reports
from paddock.serve.agents import this_machine as this_machine_module
from paddock.serve.agents.diagnosis import EngineFacts, unusable
from paddock.serve.agents.members import own_diagnosis
from paddock.serve.agents.this_machine import AgentReport, agent_name, rehearsal, this_machine, this_report
from paddock.serve.deployment.instances.registry import FILE
from paddock.serve.errors import ServeInputError
from paddock.tasks.program import main
from tests.support.boxes import box, gpu
from tests.support.gpu_machines import NO_GPU
from tests.support.nvml import Driver, card, installed

FOR_CUDA = EngineFacts("2026.10", ("cuda", "cuda"))
FOR_CPU = EngineFacts("2026.10")
NO_ENGINE = EngineFacts()


@pytest.mark.parametrize("name", ["box", "gpu-1.lab", "A", "x" * 63, "a_b"])
def test_names_that_label_a_node_are_taken(name: str) -> None:
    assert agent_name(name) == name


@pytest.mark.parametrize("name", ["", "../../x", "a/b", "-a", "a-", "x" * 64, "a b", "a,b=c", "ü", "a\n"])
def test_names_that_would_leave_the_folder_or_the_label_are_refused(name: str) -> None:
    with pytest.raises(ServeInputError, match="is not an agent name"):
        agent_name(name)


def test_the_heads_name_is_its_own() -> None:
    with pytest.raises(ServeInputError, match="name of the head's own devices"):
        agent_name("head")


def test_an_agent_of_a_shared_file_has_its_own_label(tmp_path: Path) -> None:
    file = tmp_path / "lab.json"
    rows = [
        {"agent": "box", "backend": "cuda", "index": 0, "memory_mib": 1},
        {"agent": "mac", "backend": "metal", "index": 0, "memory_mib": 1},
    ]
    file.write_text(json.dumps({"devices": rows}))
    assert [rehearsal(file, name).backend for name in ("box", "mac", "head")] == ["cuda", "metal", "cpu"]
    with pytest.raises(ServeInputError, match="no device of an agent pc\n    expected: one of box, mac"):
        rehearsal(file, "pc")


@pytest.mark.parametrize(
    ("found", "engine", "links"),
    [
        (box([gpu(0), gpu(1)]), FOR_CUDA, {}),
        (box([gpu(0), gpu(1)]), FOR_CPU, {"cuda": "build"}),
        (box([gpu(0), gpu(1)]), replace(FOR_CUDA, gpus=("cuda",)), {}),
        (box([gpu(0)]), NO_ENGINE, {"cuda": "engine", "cpu": "engine"}),
        (box([gpu(0, state="lost")]), FOR_CUDA, {}),
        (NO_GPU, FOR_CPU, {}),
        (NO_GPU, NO_ENGINE, {"cpu": "engine"}),
    ],
)
def test_a_backend_without_a_working_llama_cpp_is_named_with_its_link(
    found: Inventory, engine: EngineFacts, links: Mapping[str, str]
) -> None:
    assert {backend: link.name for backend, link in unusable(found, engine).items()} == links


@pytest.mark.skipif(sys.platform != "linux", reason="leases need Linux's /proc")
def test_a_machine_with_a_driver_and_llama_cpp_for_the_processor_says_so_of_its_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "engine_facts", lambda: FOR_CPU)
    with installed(Driver([card("A10G")])):
        report = this_report()
        assert report.backend == "cuda"
        environ = {"PADDOCK_GPU_LEASES": str(tmp_path), **report.environment()}
        a10g, processor = this_machine(inventory(processes=True), environ)
    ((engine, why),) = a10g.without
    assert engine == "llama.cpp"
    assert why.startswith("build is broken: llama.cpp here is built for the CPU alone; serve.load --server")
    assert (processor.without, a10g.unavailable) == ((), "")


def test_a_failed_replica_learns_what_is_broken_on_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine_module, "engine_facts", lambda: FOR_CPU)
    with installed(Driver([card("A10G")])):
        assert own_diagnosis("cuda", True).startswith("build is broken: llama.cpp here is built for the CPU")
        assert own_diagnosis("cuda", False) == "", "another engine brings a build of its own"
        assert own_diagnosis("cpu", True) == ""
        monkeypatch.setenv("PADDOCK_SERVE_DEVICES", "lab.json")
        assert own_diagnosis("cuda", True) == "", "a rehearsal computes on the processor"


def test_a_report_reaches_the_processes_of_its_agent(tmp_path: Path) -> None:
    assert AgentReport("cuda").environment() == {}
    assert AgentReport("cpu", tmp_path / "lab.json").environment() == {
        "PADDOCK_SERVE_DEVICES": str(tmp_path / "lab.json")
    }


def test_ending_a_killed_head_forgets_its_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "paddock/serve"
    folder.mkdir(parents=True)
    (folder / FILE).write_text("{}")
    assert main(["paddock", "serve.down"]) == 0
    assert not (folder / FILE).exists()

"""Workflows: what is accepted, the order, retries and timeouts, what a rerun takes over, and how a run is ended."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paddock.console.progress import Progress
from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.host import programs
from paddock.gpu.inventory import inventory
from paddock.gpu.leases.manager import Leases
from paddock.gpu.workflow.command import watching
from paddock.gpu.workflow.engine import exit_code, plan, run
from paddock.gpu.workflow.model import Workflow, load, parse
from paddock.gpu.workflow.tasks import Context, docker_gpus
from paddock.process import start_time
from tests.conftest import ROOT
from tests.support.docker import StandIn, stand_in
from tests.support.explore import examples
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases and sessions need Linux's /proc")

PYTHON = (sys.executable, "-IS", "-c")
SEED = {
    "ID": "gpu-cluster-setup",
    "Name": "GPU Cluster Setup",
    "Steps": [
        {"ID": "detect-gpus", "Name": "Detect GPUs", "TaskType": "gpu", "Parameters": {"action": "list"}},
        {
            "ID": "setup-nodes",
            "TaskType": "kubernetes",
            "DependsOn": ["detect-gpus"],
            "Parameters": {"action": "apply", "manifest": "kind: ConfigMap\nmetadata: {name: nodes}"},
        },
        {
            "ID": "deploy-workloads",
            "TaskType": "kubernetes",
            "DependsOn": ["setup-nodes"],
            "Parameters": {"action": "apply", "manifest": {"kind": "Pod", "metadata": {"name": "gpu-workload"}}},
        },
    ],
}


def command(id: str, code: str, *depends_on: str, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "type": "command",
        "parameters": {"argv": [*PYTHON, code]},
        "depends_on": list(depends_on),
        **more,
    }


def flow(*steps: dict[str, Any], folder: Path = Path()) -> Workflow:
    return parse({"id": "w", "steps": list(steps)}, "w.yaml", folder)


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {step["id"]: step["outcome"] for step in report["steps"]}


@pytest.fixture
def go(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run a workflow on one journal."""
    return lambda workflow, **more: run(workflow, journal=tmp_path / "journal.jsonl", **more)


def test_the_older_connectors_workflow_is_read_as_it_is() -> None:
    workflow = parse(SEED, "seed.yaml")
    assert [[step.id for step in wave] for wave in workflow.waves()] == [
        ["detect-gpus"], ["setup-nodes"], ["deploy-workloads"],
    ]  # fmt: skip
    assert [(step.task.type, step.task.action) for step in workflow.steps] == [
        ("gpu", "list"), ("kubernetes", "apply"), ("kubernetes", "apply"),
    ]  # fmt: skip


def test_the_documents_example_is_a_workflow() -> None:
    text = (ROOT / "docs" / "gpu-agents.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert [len(wave) for wave in parse(yaml.safe_load(example), "docs").waves()] == [1, 1, 1, 1]


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(SEED))
    (tmp_path / "a.json").write_text(json.dumps(SEED))
    assert load(tmp_path / "a.yaml") == load(tmp_path / "a.json") == parse(SEED, "x", tmp_path)


def step(**changes: Any) -> dict[str, Any]:
    return {"id": "a", "type": "gpu", "action": "list", **changes}


def container(gpus: str, *depends_on: str) -> dict[str, Any]:
    parameters = {"action": "run", "image": "x:1", "gpus": gpus}
    return {"id": "run", "type": "container", "parameters": parameters, "depends_on": list(depends_on)}


@pytest.mark.parametrize(("steps", "expected"), [
    ([], "no steps"),
    ([step(), step()], "two steps are called 'a'"),
    ([step(depends_on=["b"]), step(id="bb")], "did you mean bb?"),
    (
        [step(depends_on=["c"]), step(id="b", depends_on=["a"]), step(id="c", depends_on=["b"])],
        "steps wait for each other: a → c → b → a",
    ),
    ([step(type="gpuu")], "there is no task type 'gpuu'\n    expected: did you mean gpu?"),
    ([step(action="alocate")], "gpu has no action 'alocate'\n    expected: did you mean allocate?"),
    ([step(action=None)], "it has no action"),
    ([step(parameters={"x": 1})], "unknown parameter parameters.x"),
    ([step(action="allocate", parameters={"cout": 1})], "parameters.cout\n    expected: did you mean count?"),
    ([step(action="allocate", parameters={"count": "2"})], 'parameters.count is "2"\n    expected: a whole number'),
    ([step(action="allocate", parameters={"count": 0})], "greater than or equal to 1"),
    ([step(depend_on=[])], "a step has no 'depend_on'\n    expected: did you mean depends_on?"),
    ([step(timeout="soon")], "timeout is 'soon'\n    expected: seconds"),
    ([step(timeout=-1)], "timeout is -1"),
    ([step(retry=-1)], "retry is -1"),
    ([step(retry={"time": 1})], "did you mean times?"),
    ([step(id="a b")], "id is 'a b'"),
    ([{"id": "a", "type": "command", "parameters": {"argv": "rm -rf /"}}], "expected: a list"),
    ([{"id": "a", "type": "command"}], "parameters.argv is missing"),
    ([{"id": "a"}], "it has no type"),
    (["a"], "'a' is not a step"),
    ([step(task={"type": "gpu"})], "action and task are both given"),
    ([{"id": "a", "type": "kubernetes", "action": "apply"}], "manifest and file"),
    ([step(action="allocate"), container("GPUS_a")], "fix: add a to depends_on"),
    ([step(action="allocate"), container("GPUS_b", "a")], "expected: did you mean GPUS_a?"),
    ([step(action="deallocate", parameters={"leases": ["LEASE_a"]})], "'LEASE_a' is not of a lease"),
    ([step(id="a-b"), step(id="a_b")], "two steps are called 'a-b'"),
])  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(steps: Sequence[Any], expected: str) -> None:
    with pytest.raises(GpuInputError) as caught:
        parse({"id": "w", "steps": list(steps)}, "w.yaml")
    message = str(caught.value)
    assert message.startswith("w.yaml: ")
    assert expected in message
    assert "\n    expected: " in message


@pytest.mark.parametrize("text", ["", "a: [", "- 1", "steps: 3", "id: x\nid: y\nsteps: []", "\x00", "&a [*a]"])
def test_no_file_ends_in_a_traceback(tmp_path: Path, text: str) -> None:
    (tmp_path / "w.yaml").write_text(text)
    with pytest.raises(GpuInputError, match="expected: "):
        load(tmp_path / "w.yaml")


@examples(30, 500)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["id", "steps", "type", "parameters", "depends_on", "retry", "timeout", "action"])
                | st.text(),
                x,
            )
        ),
    )
)
def test_whatever_is_read_gives_a_workflow_or_a_sentence(document: Any) -> None:
    with contextlib.suppress(GpuInputError):
        parse(document, "w.yaml")


def test_independent_steps_run_at_the_same_time_and_others_in_order(go: Any, tmp_path: Path) -> None:
    meet = textwrap.dedent("""
        import pathlib, sys, time
        mine, other = map(pathlib.Path, {})
        mine.touch()
        until = time.monotonic() + 30
        while not other.exists() and time.monotonic() < until:
            time.sleep(0.01)
        sys.exit(not other.exists())
    """)
    first, second = str(tmp_path / "left"), str(tmp_path / "right")
    report = go(
        flow(
            command("left", meet.format([first, second])),
            command("right", meet.format([second, first])),
            command("last", f"import os, sys; sys.exit(not os.path.exists({first!r}))", "left", "right"),
        )
    )
    assert outcomes(report) == {"left": "succeeded", "right": "succeeded", "last": "succeeded"}


def test_a_failure_keeps_only_those_back_that_wait_for_it(go: Any) -> None:
    report = go(
        flow(
            command("bad", "import sys; sys.exit('the disk is full')"),
            command("after", "", "bad"),
            command("end", "", "after"),
            command("beside", ""),
        )
    )
    assert outcomes(report) == {"bad": "failed", "after": "skipped", "end": "skipped", "beside": "succeeded"}
    assert "the disk is full" in report["steps"][0]["error"]
    assert exit_code(report) == 1


def test_a_step_is_tried_again_and_later_each_time(go: Any, tmp_path: Path) -> None:
    count = textwrap.dedent(f"""
        import pathlib, sys
        file = pathlib.Path({str(tmp_path / "count")!r})
        file.write_text((file.read_text() if file.exists() else "") + "x")
        sys.exit(len(file.read_text()) < 3)
    """)
    happened: list[str] = []
    report = go(
        flow(command("a", count, retry={"times": 5, "backoff": "10ms"})),
        watch=lambda event: happened.append(f"{event.status} {event.detail[:9]}".strip()),
    )
    assert (outcomes(report), report["steps"][0]["attempts"]) == ({"a": "succeeded"}, 3)
    assert happened == ["started", "retried in 0.01 s", "started", "retried in 0.02 s", "started", "succeeded"]


def test_what_is_wrong_with_the_words_is_not_tried_again(go: Any) -> None:
    report = go(flow({"id": "a", "type": "command", "parameters": {"argv": ["/no/such"]}, "retry": 3}))
    assert report["steps"][0]["attempts"] == 1


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    " print('up', flush=True); time.sleep(600)"], stdout=subprocess.PIPE, process_group=0)
child.stdout.readline()
open(sys.argv[1], "w").write(f"{child.pid}\\n")
time.sleep(600)
"""


def test_a_program_that_is_ended_takes_all_it_started_with_it(tmp_path: Path) -> None:
    file, cancel = tmp_path / "child", threading.Event()

    def end_it() -> None:
        until(lambda: file.exists() and file.read_text().endswith("\n"))
        cancel.set()

    threading.Thread(target=end_it, daemon=True).start()
    with pytest.raises(programs.Cancelled, match="was ended"):
        programs.run([*PYTHON, STUBBORN, str(file)], cancel=cancel, grace=0.2)
    assert start_time(int(file.read_text())) is None


def test_a_step_that_is_too_slow_fails_and_says_so(go: Any) -> None:
    report = go(flow(command("a", "import time; time.sleep(600)", timeout=0.3)))
    assert "did not end within 0.3 s" in report["steps"][0]["error"]


class TestResuming:
    def test_a_rerun_goes_on_after_the_last_good_step(self, go: Any, tmp_path: Path) -> None:
        workflow = flow(
            command("a", f"open({str(tmp_path / 'ran')!r}, 'a').write('a')"),
            command("b", f"import os, sys; sys.exit(not os.path.exists({str(tmp_path / 'mended')!r}))", "a"),
        )
        assert outcomes(go(workflow)) == {"a": "succeeded", "b": "failed"}
        (tmp_path / "mended").touch()
        assert plan(workflow, journal=tmp_path / "journal.jsonl")["waves"][0][0]["reused"]
        assert outcomes(go(workflow)) == {"a": "reused", "b": "succeeded"}
        assert (tmp_path / "ran").read_text() == "a"
        assert outcomes(go(workflow)) == {"a": "succeeded", "b": "succeeded"}, "after a good end it begins anew"

    def test_a_changed_step_and_all_after_it_run_again(self, go: Any) -> None:
        def workflow(middle: str, timeout: float = 60) -> Workflow:
            return flow(
                command("a", ""),
                command("b", middle, "a", timeout=timeout),
                command("c", "", "b"),
                command("beside", "", "a"),
                command("bad", "import sys; sys.exit(1)"),
            )

        go(workflow("1"))
        assert outcomes(go(workflow("1", timeout=61))) == {
            "a": "reused", "b": "reused", "c": "reused", "beside": "reused", "bad": "failed",
        }  # fmt: skip
        assert outcomes(go(workflow("2"))) == {
            "a": "reused", "b": "succeeded", "c": "succeeded", "beside": "reused", "bad": "failed",
        }  # fmt: skip

    def test_fresh_takes_nothing_over(self, go: Any) -> None:
        workflow = flow(command("a", ""), command("bad", "import sys; sys.exit(1)"))
        go(workflow)
        assert outcomes(go(workflow, fresh=True))["a"] == "succeeded"

    def test_a_line_that_was_cut_off_costs_that_line(self, go: Any, tmp_path: Path) -> None:
        workflow = flow(command("a", ""), command("bad", "import sys; sys.exit(1)", "a"))
        go(workflow)
        journal = tmp_path / "journal.jsonl"
        lines = journal.read_text().splitlines(keepends=True)
        upto = next(number for number, line in enumerate(lines) if '"succeeded"' in line)
        for cut in (1, 2, 20, 39):
            journal.write_text("".join(lines[: upto + 1]) + lines[upto + 1][:cut])
            assert outcomes(go(workflow)) == {"a": "reused", "bad": "failed"}, cut
            assert all(json.loads(line) for line in journal.read_text().splitlines())

    def test_a_journal_of_something_else_is_said_and_kept(self, go: Any, tmp_path: Path) -> None:
        (tmp_path / "journal.jsonl").write_text("my notes\n")
        with pytest.raises(GpuInputError, match=r"line 1: not a line of a journal"):
            go(flow(command("a", "")))
        assert (tmp_path / "journal.jsonl").read_text() == "my notes\n"

    def test_one_run_at_a_time(self, go: Any, tmp_path: Path) -> None:
        import fcntl

        with (tmp_path / "journal.jsonl").open("w") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(GpuError, match="being run already"):
                go(flow(command("a", "")))

    def test_the_journal_is_for_its_owner_alone(self, go: Any, tmp_path: Path) -> None:
        go(flow(command("a", "")))
        assert (tmp_path / "journal.jsonl").stat().st_mode & 0o077 == 0


RUNNER = """
import json, sys
from pathlib import Path
from paddock.gpu.workflow.model import parse
from paddock.gpu.workflow.engine import exit_code, run
told = run(parse(json.loads(sys.argv[1]), "w"), journal=Path(sys.argv[2]))
print(json.dumps(told), flush=True)
sys.exit(exit_code(told))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_what_runs_and_the_journal_says_so(tmp_path: Path, number: int) -> None:
    pid = tmp_path / "pid"
    slow = f"import os, time; open({str(pid)!r} + '.part', 'w').write(str(os.getpid())); \
os.rename({str(pid)!r} + '.part', {str(pid)!r}); time.sleep(600)"
    document = {"id": "w", "steps": [command("a", ""), command("slow", slow, "a"), command("b", "", "slow")]}
    arguments = [sys.executable, "-c", RUNNER, json.dumps(document), str(tmp_path / "j")]
    runner = subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=ROOT)
    until(pid.exists)
    runner.send_signal(number)
    out, _ = runner.communicate(timeout=60)
    assert runner.returncode == 130
    assert outcomes(json.loads(out)) == {"a": "succeeded", "slow": "interrupted", "b": "skipped"}
    assert start_time(int(pid.read_text())) is None
    events = [
        (record["event"], record.get("step")) for record in map(json.loads, (tmp_path / "j").read_text().splitlines())
    ]
    assert events[-2:] == [("interrupted", "slow"), ("ended", None)]


def test_a_killed_run_is_taken_up_after_its_last_good_step(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    slow = f"""
import os, time
if not os.path.exists({str(pid)!r}):
    with open({str(pid)!r} + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename({str(pid)!r} + ".part", {str(pid)!r})
    time.sleep(600)
"""
    document = {"id": "w", "steps": [command("a", ""), command("slow", slow, "a")]}
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, json.dumps(document), str(tmp_path / "j")], cwd=ROOT)
    until(pid.exists)
    runner.kill()
    runner.wait()
    os.kill(int(pid.read_text()), signal.SIGKILL)
    report = run(parse(document, "w"), journal=tmp_path / "j")
    assert outcomes(report) == {"a": "reused", "slow": "succeeded"}


def test_the_plan_shows_the_order_and_does_nothing(tmp_path: Path) -> None:
    workflow = parse(SEED, "seed", tmp_path)
    report = plan(workflow, journal=tmp_path / "j")
    assert [[entry["would"] for entry in wave] for wave in report["waves"]] == [
        ["list the GPUs"], ["apply ConfigMap nodes"], ["apply Pod gpu-workload"],
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_the_plan_and_the_outcome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from paddock.tasks.program import main

    (tmp_path / "w.yaml").write_text(
        yaml.safe_dump({"steps": [command("a", ""), command("b", "import sys; sys.exit('no')", "a")]})
    )
    words = ["inv", "gpu.workflow", str(tmp_path / "w.yaml"), "--journal", str(tmp_path / "j")]
    assert main([*words, "--dry-run"]) == 0
    assert "\n2. b, after a: run " in capsys.readouterr().out
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "w: failed"
    assert out.splitlines()[2].endswith("exit status 1: no")
    assert "b started" in err
    assert main([*words, "--dry-run"]) == 0
    assert "1. a (done already): " in capsys.readouterr().out
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["outcome"] == "failed"


def test_each_event_of_a_step_is_a_line(go: Any) -> None:
    out = io.StringIO()
    workflow = flow(command("a", ""), command("bad", "import sys; sys.exit('no')", "a"))
    go(workflow, watch=watching(Progress(out)))
    words = [line.split(maxsplit=1)[1] for line in out.getvalue().splitlines()]
    assert [word.split(" after")[0] for word in words] == ["a started", "a succeeded", "bad started", "bad failed"]


class TestOnGpus:
    """With a made-up driver library under real nvidia-ml-py, and real leases."""

    @pytest.fixture(autouse=True)
    def _driver(self, nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library))
        monkeypatch.setenv("FAKE_NVML_COUNT", "4")
        monkeypatch.setenv("PADDOCK_GPU_LEASES", str(tmp_path / "leases"))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)

    def test_a_lease_reaches_the_steps_that_wait_for_it(self, go: Any) -> None:
        code = (
            "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['GPUS_lease'], os.environ['LEASE_lease'])"
        )
        later = "import os; print('GPUS_lease' in os.environ)"
        report = go(
            flow(
                step(id="lease", action="allocate", parameters={"count": 2}),
                command("use", code, "lease"),
                step(id="back", action="deallocate", parameters={"leases": ["LEASE_lease"]}, depends_on="use"),
                step(id="left", action="leases", depends_on="back"),
                command("after", later, "back"),
            )
        )
        lease, use, _, remaining, after = (entry["result"] for entry in report["steps"])
        uuids = ",".join(device["uuid"] for device in lease["lease"]["devices"])
        assert use["output"].split() == [uuids, uuids, lease["lease"]["id"]]
        assert remaining["leases"] == []
        assert after["output"] == "False\n"

    def test_a_lease_that_ended_with_its_run_is_taken_again(self, tmp_path: Path) -> None:
        document = {
            "id": "w",
            "steps": [
                step(id="lease", action="allocate"),
                command("bad", "import sys; sys.exit(1)", "lease"),
            ],
        }
        arguments = [sys.executable, "-c", RUNNER, json.dumps(document), str(tmp_path / "j")]
        first, second = (
            json.loads(subprocess.run(arguments, capture_output=True, cwd=ROOT, check=False).stdout) for _ in range(2)
        )
        assert outcomes(first) == outcomes(second) == {"lease": "succeeded", "bad": "failed"}
        ids = {report["steps"][0]["result"]["lease"]["id"] for report in (first, second)}
        assert len(ids) == 2

    def test_a_program_runs_on_gpus_of_its_own(self, go: Any) -> None:
        code = "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES']); sys.exit(5)"
        report = go(flow(step(action="run", parameters={"command": [*PYTHON, code]})))
        assert "exit status 5: GPU-" in report["steps"][0]["error"]


class TestContainersByAStandInForDocker:
    @pytest.fixture(autouse=True)
    def docker(self, driver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
        driver("8xh100")
        monkeypatch.setenv("PADDOCK_GPU_LEASES", str(tmp_path / "leases"))
        program = stand_in(tmp_path / "bin", "if 'slow' in argv: time.sleep(600)", environ=("TOKEN",))
        monkeypatch.setenv("PATH", program.path)
        return program

    def container(self, **parameters: Any) -> dict[str, Any]:
        return {"id": "a", "type": "container", "parameters": {"action": "run", "image": "x:1"} | parameters}

    def test_its_gpus_are_leased_and_secrets_stay_off_its_command_line(self, go: Any, docker: StandIn) -> None:
        report = go(flow(self.container(gpus=2, environment={"TOKEN": "s3cret"}, command=["nvidia-smi"], name="n")))
        assert report["outcome"] == "succeeded"
        (call,) = docker.calls()
        assert call["environ"] == {"TOKEN": "s3cret"}
        assert "s3cret" not in " ".join(call["argv"])
        assert call["argv"][call["argv"].index("--gpus") + 1].count("GPU-") == 2
        assert call["argv"][-2:] == ["x:1", "nvidia-smi"]
        assert Leases().all() == (), "it has ended"

    def test_a_container_gets_the_gpus_of_a_lease_before_it(self, tmp_path: Path) -> None:
        uuids = [gpu.uuid for gpu in inventory().gpus[2:4]]
        granted = {"lease": {"id": "0a", "devices": [{"uuid": uuid} for uuid in uuids]}}
        with contextlib.ExitStack() as cleanup:
            context = Context(tmp_path, "n", os.getpid(), cleanup, {"a": granted})
            arguments, lease = docker_gpus("GPUS_a", context)
            with pytest.raises(GpuInputError, match="released"):
                docker_gpus("GPUS_b", context)
        assert all(f"{uuid}" in " ".join(arguments) for uuid in uuids)
        assert lease is None

    def test_an_image_is_no_option_of_docker(self, go: Any, docker: StandIn) -> None:
        with pytest.raises(GpuInputError, match="'--privileged' is not an image reference"):
            go(flow(self.container(image="--privileged", command=["alpine"])))
        assert not (docker.folder / "calls").exists()

    def test_the_older_connectors_fields_say_which(self, go: Any, docker: StandIn) -> None:
        go(flow(self.container(gpus={"Enabled": True, "GPUIDs": [1], "Capabilities": ["compute"]}, detach=True)))
        (call,) = docker.calls()
        assert any("GPU-00000001" in word for word in call["argv"])

    def test_steps_whose_ids_differ_in_case_have_containers_of_their_own(self, go: Any, docker: StandIn) -> None:
        go(flow(self.container(), {**self.container(), "id": "A"}))
        names = {call["argv"][call["argv"].index("--name") + 1] for call in docker.calls()}
        assert len(names) == 2

    def test_a_lease_is_released_when_its_arguments_fail(self, go: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise GpuError("no such target")

        monkeypatch.setattr("paddock.gpu.render.render", fail)
        report = go(flow(self.container(gpus=1)))
        assert "no such target" in report["steps"][0]["error"]
        assert Leases().all() == ()

    def test_one_that_stays_keeps_its_lease_until_the_workflow_ends(self, go: Any) -> None:
        report = go(flow(self.container(gpus=1, detach=True)))
        held = [lease.id for lease, _ in Leases().all()]
        assert held == [report["steps"][0]["result"]["lease"]["id"]]

    def test_a_slow_container_is_removed_and_its_gpus_are_released(self, go: Any, docker: StandIn) -> None:
        slow = {"timeout": 0.5, "retry": {"times": 1, "backoff": "1ms"}}
        report = go(flow({**self.container(gpus=3, name="n", command=["slow"]), **slow}))
        assert "did not end within 0.5 s" in report["steps"][0]["error"]
        # On a busy machine the first word of `run` may come after its time.
        removals = [call["argv"] for call in docker.calls() if call["argv"][0] != "run"]
        assert removals == [["rm", "--force", "n"]] * 2
        assert Leases().all() == ()

"""`inv plan` as its users meet it: exit codes, the JSON document, and a report that suits where it is printed."""

from __future__ import annotations

import gc
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock import clock
from paddock.console.output import PRINTED_JSON, BadFlag, JsonOutput, console
from paddock.fleet import load
from paddock.plan.command import FailOn, PlanParameters, fail_on, plan
from paddock.plan.document.builder import build_document
from paddock.plan.document.model import PlanDocument
from paddock.plan.output import terminal
from paddock.plan.plan import build_plan
from paddock.plan.rules import RULES
from paddock.tasks import program
from tests.support import fleets
from tests.support.documents import of
from tests.support.performing import performed

SECONDS = 300


@pytest.fixture
def inv(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run a command in this process; `root` is the project, and `cwd` the folder of its caller."""

    def call(*arguments: str, root: Path = fleets.ROOT, cwd: Path | None = None) -> int:
        monkeypatch.setenv("PADDOCK_ROOT", str(root))
        monkeypatch.setenv("PADDOCK_CWD", str(cwd or root))
        return program.main(["inv", *arguments])

    return call


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    """Collect garbage again after a command that switched it off for its own short process."""
    yield
    gc.enable()


def run(root: Path, stack: str, **flags: Any) -> int:
    return performed(plan, root, PlanParameters(stack=stack, **flags))


@pytest.fixture(scope="session")
def checkout(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the project with a stack file of the test's own: the program and the packages are the real ones."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml", "Pulumi.prod.yaml"):
        (copy / name).write_text((root / name).read_text())
    for folder in ("paddock", "infra", "ami", "runners"):
        (copy / folder).symlink_to(root / folder)
    stack = yaml.safe_load((root / "Pulumi.dev.yaml").read_text())
    stack["config"]["paddock:fleet"]["runners"]["gpu"] |= {"cpu": 4, "memory": "16Gi"}
    stack["config"]["paddock:fleet"]["pools"]["t4"]["instances"] = ["g4dn.xlarge"]
    (copy / "Pulumi.seed.yaml").write_text(yaml.safe_dump(stack))
    return copy


def test_the_dev_fleet_is_clean_and_shown(inv: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert inv("plan") == 0
    output = capsys.readouterr().out
    for word in ("g4dn.xlarge", "[self-hosted, linux, x64, gpu, cuda]", "spot", "Pools", "Runners", "Resources"):
        assert word in output
    assert "\x1b" not in output


def test_json_on_standard_output_is_one_document_and_nothing_else(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root, "prod", json=PRINTED_JSON) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"schema", "stack", "resources", "fit", "findings"} <= set(document)
    assert document["stack"] == "prod"
    for resource in document["resources"]:
        assert {"type", "name", "urn", "parent", "inputs"} <= set(resource)
    for fit in document["fit"]:
        assert {"runner", "pool", "instance", "per_node", "limiting", "slack"} <= set(fit)
    assert {fit["runner"] for fit in document["fit"]} == {
        "gpu", "gpu-a10g-x4", "gpu-l4", "gpu-a100", "gpu-a100-x8", "gpu-h100-x8"
    }  # fmt: skip
    assert not [finding for finding in document["findings"] if finding["severity"] == "error"]


def test_a_comparison_comes_first_and_is_in_the_json_file(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, compared = tmp_path / "saved.json", tmp_path / "compared.json"
    run(root, "dev", json=JsonOutput(saved))
    document = json.loads(saved.read_text())
    document["cost"]["month"]["expected"]["value"] -= 100
    saved.write_text(json.dumps(document))
    capsys.readouterr()
    run(root, "dev", json=JsonOutput(compared), against=saved)
    assert capsys.readouterr().out.startswith("Changes of dev: no resource changes; +$100 (")
    assert json.loads(compared.read_text())["diff"]["cost"]["expected"]["old"] == pytest.approx(
        document["cost"]["month"]["expected"]["value"]
    )


def test_a_runner_without_a_node_shows_its_deficit_and_fails(
    inv: Callable[..., int], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inv("plan", "--stack", "seed", "--details", root=checkout) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert re.search(r"g4dn\.xlarge lacks 265m CPU of 4, 1352Mi memory of 16Gi", output)
    assert "The largest that fits is cpu 3735m, memory 15032Mi" in output


@pytest.mark.parametrize("stack", fleets.EXAMPLES)
def test_an_example_passes_strict_and_says_what_to_do(stack: str) -> None:
    document = of(stack)
    assert [finding for finding in document.findings if finding.severity != "info"] == []
    assert {"CFG004", "QUO001"} <= {step.id for step in document.before_up}
    assert fail_on(None, strict=True).count(document) == 0
    assert fail_on("error,CFG004").count(document) == sum(step.id == "CFG004" for step in document.before_up)


def test_old_facts_of_the_catalogue_are_one_note(root: Path) -> None:
    old = build_plan(load(root, "dev"), date(2026, 12, 20), root=root)
    (note,) = (finding for finding in old.findings if finding.id in {"CAT001", "CMP006"})
    assert (note.id, note.severity) == ("CAT001", "info")


@pytest.mark.parametrize(("text", "strict", "expected"), [
    (None, False, FailOn()),
    (None, True, FailOn("warning")),
    ("info", False, FailOn("info")),
    ("error", True, FailOn("warning")),
    ("Warning, PAD-33,cfg004", False, FailOn("warning", frozenset({"PAD033", "CFG004"}))),
    ("QUO001", False, FailOn("error", frozenset({"QUO001"}))),
])  # fmt: skip
def test_what_fails_a_plan_is_read_from_flags(text: str | None, strict: bool, expected: FailOn) -> None:
    assert fail_on(text, strict=strict) == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [("warnings", "did you mean warning?"), ("PAD133", "did you mean PAD"), ("", "docs/rules.md"), ("error,", "docs")],
)
def test_an_unknown_level_or_id_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(BadFlag, match=re.escape(hint)):
        fail_on(text)


def test_a_change_that_aws_refuses_fails_without_strict(checkout: Path, tmp_path: Path) -> None:
    content = (checkout / "Pulumi.dev.yaml").read_text()
    (checkout / "Pulumi.moved.yaml").write_text(content)
    assert run(checkout, "moved", json=JsonOutput(tmp_path / "old.json")) == 0
    (checkout / "Pulumi.moved.yaml").write_text(content + "    network: {cidr: 10.7.0.0/16}\n")
    assert run(checkout, "moved", against=tmp_path / "old.json") > 0


def test_a_json_file_stands_where_the_caller_stands(
    inv: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inv("plan", "--json", "out.json", cwd=tmp_path) == 0
    assert json.loads((tmp_path / "out.json").read_text())["stack"] == "dev"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert "Pools" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "message"), [
    (("--stack", "pord"), 'did you mean "prod"?'),
    (("--json", "/nosuch/plan.json"), "cannot write /nosuch/plan.json: there is no folder /nosuch"),
    (("--explain", "PAD999"), "--explain: 'PAD999' is not the id of a finding"),
])  # fmt: skip
def test_bad_arguments_are_explained_and_end_with_2(
    inv: Callable[..., int], arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inv("plan", *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_process_of_another_hash_seed_plans_the_same(root: Path, tmp_path: Path, prod_plan: PlanDocument) -> None:
    """On a terminal, which gets colours."""
    reader, writer = pty.openpty()
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    env = {**os.environ, "TERM": "xterm-256color", "PYTHONHASHSEED": seed}
    command = [sys.executable, "-m", "paddock", "plan", "--stack", "prod", "--json", str(tmp_path / "plan.json")]
    process = subprocess.Popen(command, cwd=root, env=env, stdout=writer)
    os.close(writer)
    output = b""
    while True:
        try:
            chunk = os.read(reader, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not chunk:
            break
        output += chunk
    os.close(reader)
    assert process.wait(SECONDS) == 0
    assert b"\x1b[" in output
    written = json.loads((tmp_path / "plan.json").read_text())
    same = json.dumps(written) == json.dumps(prod_plan.data())
    assert same  # the difference of two such documents would take minutes to show


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_may_ask_for_no_colours(no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    terminal.show(of("dev"), console(screen))
    assert ("\x1b[" in screen.getvalue()) is coloured


def test_long_tables_are_cut_and_say_so(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = yaml.safe_load((checkout / "Pulumi.dev.yaml").read_text())
    fleet = stack["config"]["paddock:fleet"]
    fleet["runners"] = {f"gpu-{n}": {"pool": "t4", "max": 1} for n in range(20)}
    (checkout / "Pulumi.long.yaml").write_text(yaml.safe_dump(stack))
    document = planned(checkout, "long")
    cut = "\n".join(printed(document, monkeypatch, 120, details=False))
    whole = "\n".join(printed(document, monkeypatch, 120))
    assert "gpu-9]" not in cut
    assert "15 of 20 shown; --details shows the rest" in cut
    assert "gpu-9]" in whole
    assert "--details" not in whole


def test_the_plan_of_a_small_stack_fits_one_screen(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = planned(root, "dev")
    lines = printed(document, monkeypatch, 100, details=False)
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    for finding in document.findings:
        assert sum(finding.id in line for line in lines if "--explain" not in line) == 1
    for step in document.before_up:
        assert any(line[4:].startswith(f"{step.id}  {step.text[:40]}") for line in lines)


def test_an_error_is_shown_whole_on_the_screen(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = yaml.safe_load((checkout / "Pulumi.dev.yaml").read_text())
    stack["config"]["paddock:fleet"]["runners"]["gpu"]["memory"] = "900Gi"
    (checkout / "Pulumi.wrong.yaml").write_text(yaml.safe_dump(stack))
    document = planned(checkout, "wrong")
    (error,) = (finding for finding in document.findings if finding.severity == "error")
    printed_lines = printed(document, monkeypatch, 100, details=False)
    assert f"        fix: {error.fix}" in printed_lines
    assert error.message in " ".join(" ".join(printed_lines).split())


def test_explain_shows_findings_and_steps_in_full(
    inv: Callable[..., int], root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert inv("plan", "--explain", "pad033,QUO001,FIT001") == 0
    lines = capsys.readouterr().out.splitlines()
    document = planned(root, "dev")
    text = " ".join(" ".join(lines).split())
    (note,) = (finding for finding in document.findings if finding.id == "PAD033")
    assert f"PAD033 error: {RULES['PAD033'].title} why {RULES['PAD033'].why} where {note.subject}" in text
    assert f"  fix     {note.fix}" in lines
    for step in document.before_up:
        assert (f"  run     {step.command}" in lines) is (step.id == "QUO001")
    assert "FIT001 error: A runner fits on no instance type of its pool here stack dev has nothing of it" in text
    assert "Pools" not in lines


def planned(root: Path, stack: str) -> PlanDocument:
    return build_document(build_plan(load(root, stack), clock.today(), root=root))


@pytest.fixture(scope="module")
def prod_plan(root: Path) -> PlanDocument:
    return planned(root, "prod")


def printed(
    document: PlanDocument, monkeypatch: pytest.MonkeyPatch, columns: int, *, details: bool = True
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = io.StringIO()
    terminal.show(document, console(out), details=details)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_a_report_keeps_to_the_width_but_for_what_is_copied(
    prod_plan: PlanDocument, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(prod_plan, monkeypatch, columns)
    copied = ("        fix: ", "    run: ")
    assert [line for line in lines if len(line) > columns and not line.startswith(copied)] == []
    fixes = [line.removeprefix("        fix: ") for line in lines if line.startswith("        fix: ")]
    assert fixes == [finding.fix for finding in prod_plan.findings if finding.fix]
    commands = [line.removeprefix("    run: ") for line in lines if line.startswith("    run: ")]
    assert commands == [step.command for step in prod_plan.before_up if step.command]


def test_at_eighty_columns_no_instance_type_is_torn(prod_plan: PlanDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    output = "\n".join(printed(prod_plan, monkeypatch, 80))
    words = set(re.split(r"[\s,:]+", output))
    assert {instance.name for pool in prod_plan.pools for instance in pool.instances} <= words


def test_every_resource_is_priced_free_or_unpriced(prod_plan: PlanDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    output = "\n".join(printed(prod_plan, monkeypatch, 200))
    resources = re.search(r"^(\d+) resources, 5 pools, 6 runners; ", output, re.M)
    priced = re.search(r"\[(\d+) resources? priced, (\d+) free, (\d+) unpriced", output)
    assert resources
    assert priced
    assert int(resources[1]) == sum(map(int, priced.groups()))


def test_a_fleet_without_runners_says_so(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = yaml.safe_load((checkout / "Pulumi.dev.yaml").read_text())
    del stack["config"]["paddock:fleet"]["runners"]
    (checkout / "Pulumi.none.yaml").write_text(yaml.safe_dump(stack))
    lines = printed(planned(checkout, "none"), monkeypatch, 200)
    assert "Runners" not in lines
    assert "info    CFG003  pools.t4: no runner uses this pool" in lines

"""Every mistake in a stack file gives one clear message, and never a traceback.

`tests/bad_input/NAME.yaml` holds a mistake, `NAME.txt` what a user is told about it. After a change of the messages
write the texts anew and read each as a stranger would:

    PADDOCK_UPDATE_GOLDEN=1 ./inv test -k bad_input
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from paddock.fleet import FleetError, load

BAD_INPUT = Path(__file__).resolve().parents[2] / "bad_input"
CASES = sorted(path.stem for path in BAD_INPUT.glob("*.yaml"))
UPDATE = bool(os.environ.get("PADDOCK_UPDATE_GOLDEN"))
"""Read at import, because tests run without the caller's PADDOCK variables."""

GOOD = """\
config:
  aws:region: us-west-2
  paddock:fleet:
    github: {url: https://github.com/acme, token: config}
    pools:
      t4: {instances: [g4dn.xlarge], nodes: {max: 5}}
    runners:
      gpu: {pool: t4}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: paddock\nruntime: python\n")
    return tmp_path


def refusal(project: Path, stack: str = "dev") -> FleetError:
    with pytest.raises(FleetError) as caught:
        load(project, stack)
    assert caught.value.exit_code == 2
    return caught.value


def refused(project: Path, stack: str = "dev") -> str:
    return str(refusal(project, stack)).replace(str(project), "PROJECT")


@pytest.mark.parametrize("case", CASES)
def test_each_mistake_has_its_recorded_message(case: str, project: Path) -> None:
    """And names the place, and what was expected there."""
    content = (BAD_INPUT / f"{case}.yaml").read_bytes()
    (project / "Pulumi.dev.yaml").write_bytes(content)
    error = refusal(project)
    text, problems = str(error).replace(str(project), "PROJECT") + "\n", error.problems
    golden = BAD_INPUT / f"{case}.txt"
    if UPDATE:
        golden.write_text(text)
    assert text == golden.read_text()
    assert (project / "Pulumi.dev.yaml").read_bytes() == content
    assert len(set(problems)) == len(problems)
    assert [problem.line for problem in problems] == sorted(problem.line for problem in problems)
    for problem in problems:
        assert problem.file == "Pulumi.dev.yaml"
        assert problem.line > 0
        assert problem.message
        assert problem.expected


@pytest.mark.parametrize("case", [case for case in CASES if "clear-text" in case or "token-as" in case])
def test_a_credential_is_never_repeated(case: str, project: Path) -> None:
    content = (BAD_INPUT / f"{case}.yaml").read_text()
    (project / "Pulumi.dev.yaml").write_text(content)
    secrets = re.findall(r"ghp_\w+|LS0tLS1\S+|abc123\w+|bm90\S+|-----BEGIN.*", content)
    assert secrets
    assert not [secret for secret in secrets if secret in refused(project)]


def test_every_text_has_its_file() -> None:
    assert {path.stem for path in BAD_INPUT.glob("*.txt")} == set(CASES)


def test_no_stack_file(project: Path) -> None:
    assert refused(project) == (
        "there is no stack file in PROJECT\n"
        "    expected: a file Pulumi.dev.yaml\n"
        "    fix: make it; the top of docs/configuration.md has a complete one to copy"
    )


def test_unknown_stack(project: Path) -> None:
    for stack in ("dev", "prod"):
        (project / f"Pulumi.{stack}.yaml").write_text(GOOD)
    assert refused(project, "prd") == (
        'there is no stack "prd" in PROJECT\n    expected: one of dev, prod\n    fix: did you mean "prod"?'
    )
    assert "choose one of these with --stack" in refused(project, "../secret")


def test_no_project_file(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(GOOD)
    assert refused(tmp_path) == (
        "there is no Pulumi.yaml in PROJECT\n"
        "    expected: the Pulumi project file\n"
        "    fix: run from the project's folder, or restore Pulumi.yaml from git"
    )


@pytest.mark.parametrize(("content", "expected"), [
    ("", "Pulumi.yaml:1: the project has no name"),
    ("name: [a]", "Pulumi.yaml:1: the project has no name"),
    ("name: paddock\nstackConfigDir: stacks\n", "Pulumi.yaml:2: stackConfigDir: stack files in another folder"),
    ("name: 'paddock", "Pulumi.yaml:1: not valid YAML: a quote that is never closed"),
])  # fmt: skip
def test_project_file_that_says_too_little_or_too_much(content: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text(content)
    (tmp_path / "Pulumi.dev.yaml").write_text(GOOD)
    assert refused(tmp_path).startswith(expected)


def test_a_folder_in_place_of_the_stack_file(project: Path) -> None:
    (project / "Pulumi.dev.yaml").mkdir()
    assert refused(project).startswith("Pulumi.dev.yaml: this is a folder\n    expected: a file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(project: Path) -> None:
    path = project / "Pulumi.dev.yaml"
    path.write_text(GOOD)
    path.chmod(0)
    assert refused(project).startswith("Pulumi.dev.yaml: cannot be read: Permission denied")


def test_a_link_in_a_circle(project: Path) -> None:
    (project / "Pulumi.dev.yaml").symlink_to("Pulumi.dev.yaml")
    assert "cannot be read" in refused(project) or "there is no stack" in refused(project)


ABSURD = {
    "binary": (bytes(range(256)), "is not UTF-8"),
    "utf-16": (GOOD.encode("utf-16"), "is not UTF-8"),
    "latin-1": (GOOD.replace("acme", "z\u00fcrich").encode("latin-1"), "Pulumi.dev.yaml:4: byte 0xfc is not UTF-8"),
    "nul": (b"config:\n  a: \x00\n", "Pulumi.dev.yaml:2: not valid YAML: the character U+0000 is not allowed"),
    "10 MB": (GOOD.encode() + b"# padding\n" * 1_000_000, "the file has 9.5 MiB"),
    "deep lists": (b"config: " + b"[" * 20_000, "nested too deep"),
    "deep maps": (b"config: " + b"{a: " * 500 + b"}" * 500, "nested too deep"),
    "aliases of aliases": (b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + b"".join(b"a%d: &a%d [%s]\n" % (i, i,
        b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 10)), "more than 50000 values"),
    "only a scalar": (b"hello", "text is not a stack file"),
    "a thousand duplicates": (b"a: 1\n" * 1001, "... and 960 more"),
    "an escape sequence": (b'config: {aws:region: us-west-2, paddock:fleet: {"\\e[2J\\nx": 1}}',
        "an invisible character: U+001B"),
    "a huge number": (GOOD.replace("max: 5", "max: " + "9" * 5000).encode(), "runners"),
}  # fmt: skip


@pytest.mark.parametrize("case", ABSURD)
def test_absurd_files_are_refused_in_a_moment(case: str, project: Path) -> None:
    content, expected = ABSURD[case]
    (project / "Pulumi.dev.yaml").write_bytes(content)
    started = time.process_time()
    text = refused(project)
    assert time.process_time() - started < 20
    assert expected in text or case == "a huge number"
    assert all(len(line) < 700 and line.isprintable() for line in text.splitlines())

"""`inv init`: a stack file that plans, from flags or from answers, and nothing written where one is wrong."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock import catalog, clock
from paddock.catalog.table import priced_regions
from paddock.console.output import PRINTED_JSON, BadFlag
from paddock.fleet import load
from paddock.init import address, scope, stack_file
from paddock.init.answers import Answers
from paddock.init.command import InitParameters
from paddock.init.gpu_choice import Choice, choices
from paddock.plan.plan import build_plan
from paddock.tasks import init as command
from tests.support.github_api import GitHubApi, private_key, serve
from tests.support.http_server import Handler, serving
from tests.support.performing import performed

FLAGS = {"url": "https://github.com/acme", "region": "us-west-2", "allow": "198.18.0.7/32", "gpu": "t4"}


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Path:
    """Return a folder with a project file, and no stack."""
    shutil.copy(root / "Pulumi.yaml", tmp_path)
    return tmp_path


def run(project: Path, **flags: Any) -> None:
    """Perform the command as it is."""
    assert performed(command.init, project, InitParameters(**flags)) == 0


def init(project: Path, **flags: Any) -> None:
    """Perform the command with flags for all that it needs."""
    run(project, **(FLAGS | flags))


@pytest.mark.parametrize("flags", [
    {},
    {"url": "acme/project", "gpu": "h100", "allow": "none"},
    {"gpu": "l40s", "region": "us-east-1"},  # two of its sizes are dearer on spot than spot should be
    {"gpu": "a100-80gb", "region": "us-east-1"},
], ids=str)  # fmt: skip
def test_a_new_stack_plans_without_errors_and_warnings(project: Path, root: Path, flags: dict[str, str]) -> None:
    init(project, **flags)
    plan = build_plan(load(project, "ci"), clock.today(), root=root)

    assert [finding for finding in plan.findings if finding.severity != "info"] == []
    # What only its owner can do: the App with its key, a network that lets pulumi up in, room in the account.
    assert {step.id for step in plan.before_up} <= {"CFG001", "CFG004", "CFG005", "QUO001"}


def test_every_gpu_of_every_priced_region_makes_a_fleet(project: Path) -> None:
    github = scope.github("acme")
    offered = [choice for region in priced_regions() if catalog.regions()[region] for choice in choices(region)]
    for choice in offered:
        stack_file.text(Answers(github, choice.region, ("198.18.0.7/32",), choice, "ci", None, None), project)
    assert len(offered) > 100


def test_a_gpu_that_the_default_driver_does_not_know_is_not_offered() -> None:
    assert "rtx-pro-4500" in catalog.gpus()
    assert "rtx-pro-4500" not in {choice.gpu.key for choice in choices("us-west-2")}


def test_the_pool_has_the_smallest_whole_types_of_its_gpu() -> None:
    (l4,) = (choice for choice in choices("us-west-2") if choice.gpu.key == "l4")
    assert [instance.name for instance in l4.types] == ["g6.xlarge", "g6.2xlarge", "g6.4xlarge"]


def test_the_apps_numbers_may_be_given_at_once(project: Path) -> None:
    init(project, app_id="987", installation="4321")
    github = load(project, "ci").fleet.github
    assert github.app
    assert (github.app.id, github.app.installation) == ("987", "4321")


@pytest.mark.parametrize(("flags", "message"), [
    ({"region": "us-wst-2"}, "did you mean us-west-2?"),
    ({"region": "us-west-1"}, "accounts have different zones"),
    ({"region": "us-gov-west-1"}, "--region: us-gov-west-1 is not supported yet"),
    ({"gpu": "t44"}, "did you mean t4?"),
    ({"gpu": "b300", "region": "af-south-1"}, "b300 is not sold in af-south-1"),
    ({"allow": "198.18.0.7"}, "expected: 198.18.0.7/32"),
    ({"allow": "any"}, "opens the API to the world"),
    ({"allow": "2001:db8::/32"}, "is IPv6"),
    ({"allow": "here"}, '"here" is not an IPv4 network'),
    ({"url": "https://github.com/enterprises/acme"}, "lets no App register runners of an enterprise"),
    ({"url": "https://github.acme.com/acme"}, "is a GitHub Enterprise Server"),
    ({"url": "http://github.com/acme"}, "is not where runners can register"),
    ({"stack": "../x"}, "not a name of a stack"),
    ({"app_id": "my app"}, "--app-id"),
    ({"push": "acme"}, '--push: "acme" is not a repository'),
    ({"push": "acme@*/images@*"}, "anyone who takes such a name would be trusted"),
    ({"push": "acme@65/images"}, "fix: gh api repos/acme/images --jq "),
    ({"github_key": "app-key.pem"}, "--github-key reads the ids of the repository in --push"),
    ({"url": "", "gpu": ""}, "init needs --url, --gpu"),
    ({"fleet": True}, "--fleet and --write are of --schema"),
    ({"schema": True}, "--schema takes --fleet or --write alone\n    fix: leave --allow out"),
])  # fmt: skip
def test_a_wrong_flag_writes_nothing(project: Path, flags: dict[str, str], message: str) -> None:
    with pytest.raises(BadFlag) as error:
        init(project, **flags)
    assert message in str(error.value)
    assert [path.name for path in project.iterdir()] == ["Pulumi.yaml"]


@pytest.mark.parametrize("url", ["http://github.com/acme", "https://github.com/a/b/c", "https://me:x@github.com/acme"])
def test_a_refused_address_suggests_only_what_init_accepts(project: Path, url: str) -> None:
    with pytest.raises(BadFlag) as error:
        init(project, url=url)
    expected = str(error.value).partition("expected: ")[2]
    assert "OWNER/REPOSITORY" in expected
    assert "enterprises" not in str(error.value)


def test_a_stack_file_is_replaced_only_with_overwrite(project: Path) -> None:
    init(project)
    with pytest.raises(BadFlag, match=r"Pulumi\.ci\.yaml is there already"):
        init(project, gpu="l4")
    init(project, gpu="l4", overwrite=True)
    assert list(load(project, "ci").fleet.pools) == ["l4"]


@pytest.mark.parametrize(("text", "message"), [
    ("encryptionsalt: v1:made-up", "holds secrets"),
    ("encryptedkey: made-up", "holds secrets"),
    ("config: {a: {secure: v1:made-up}}", "holds secrets"),
    ("config:\n  a:\n    - b:\n        secure: v1:made-up\n", "holds secrets"),
    ("config: {a: [", "may hold secrets, and cannot be read: Pulumi.ci.yaml:1: not valid YAML"),
])  # fmt: skip
def test_a_stack_file_with_secrets_is_never_replaced(project: Path, text: str, message: str) -> None:
    path = project / "Pulumi.ci.yaml"
    path.write_text(text)
    with pytest.raises(BadFlag, match=message):
        init(project, overwrite=True)
    assert path.read_text() == text


def test_the_word_secure_in_a_comment_is_no_secret(project: Path) -> None:
    (project / "Pulumi.ci.yaml").write_text("# secure: by default\nconfig: {a: 'secure: no'}\n")
    init(project, overwrite=True)
    assert list(load(project, "ci").fleet.pools) == ["t4"]


@pytest.mark.parametrize(("text", "url"), [
    ("acme/", "https://github.com/acme"),
    ("acme/project.git", "https://github.com/acme/project"),
    ("https://github.com/acme/project.git/", "https://github.com/acme/project"),
])  # fmt: skip
def test_an_address_may_be_that_of_a_clone(text: str, url: str) -> None:
    assert scope.github(text).url == url


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_asked_again_after_a_wrong_answer(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["acme", "us-wst-2", "us-west-2", "l4", "198.18.0.0/24", "", "", "", "yes"]
    out = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join(answers) + "\n"))
    monkeypatch.setattr(sys, "stderr", out)
    run(project)

    assert "did you mean us-west-2?" in out.getvalue()
    assert "a100-40gb" in out.getvalue()  # the list of GPUs to choose from
    fleet = load(project, "ci").fleet
    assert (fleet.region, list(fleet.pools), fleet.github.url) == ("us-west-2", ["l4"], "https://github.com/acme")


def test_a_no_at_the_end_writes_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("\n\n\nno\n"))
    monkeypatch.setattr(sys, "stderr", Terminal())
    init(project)
    assert not (project / "Pulumi.ci.yaml").exists()


def test_json_is_one_document(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(project, json=PRINTED_JSON)
    document = json.loads(capsys.readouterr().out)
    assert document["file"] == "Pulumi.ci.yaml"
    assert document["gpu"]["instances"] == ["g4dn.xlarge", "g4dn.2xlarge", "g4dn.4xlarge"]
    assert document["app"] == {"id": None, "installation": None}
    assert document["push"] is None


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield what the service of addresses answers."""
    answer = ["198.18.0.9\n"]

    class Answering(Handler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer[0].encode())

    with serving(Answering) as url:
        monkeypatch.setattr(address, "SERVICE", f"{url}/")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield answer


def test_this_machines_address_is_asked_for_only_by_name(project: Path, service: list[str]) -> None:
    init(project, allow="me,198.18.1.0/24")
    written = yaml.safe_load((project / "Pulumi.ci.yaml").read_text())["config"]["paddock:fleet"]
    assert written["cluster"]["endpoint"]["allow"] == ["198.18.0.9/32", "198.18.1.0/24"]


def test_an_answer_that_is_no_address_is_refused(project: Path, service: list[str]) -> None:
    service[0] = "<html>log in first</html>"
    with pytest.raises(address.AddressUnknown, match=r"<html>log in first</html>.*\n.*expected"):
        init(project, allow="me")
    assert not (project / "Pulumi.ci.yaml").exists()


def test_a_price_that_is_not_known_is_a_question_mark() -> None:
    from paddock.init.gpu_choice import table

    unpriced: Choice = next(choice for choice in choices("ap-southeast-7") if choice.gpu.key == "t4")
    lines = list(table((unpriced,)))
    assert lines[1].split()[-3:] == ["?", "?", "g4dn.xlarge"]
    assert re.search(r"prices of \d{4}-\d\d-\d\d", lines[-1])


API = GitHubApi(private_key())
IMAGES = {"id": 74, "name": "images", "owner": {"login": "acme", "id": 65}, "created_at": "2026-08-01T10:00:00Z"}


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubApi]:
    """Yield GitHub's API, which shows one repository to the App."""
    with serve(replace(API, pages={"/repos/acme/images": (200, IMAGES)})) as api:
        monkeypatch.setattr("paddock.operate.sources.github.api_address", lambda github: f"{api.url}/api/v3")
        yield api


@pytest.fixture
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("key") / "app-key.pem"
    file.write_text(API.key)
    return file


def pushes(project: Path) -> str:
    push = load(project, "ci").fleet.images.push
    assert push
    return push.repository


APP = {"app_id": "12345", "installation": "678"}


@pytest.mark.parametrize("written", ["acme/images", "https://github.com/acme/images.git", "acme@65/images@74"])
def test_the_app_reads_the_ids_of_the_repository_that_pushes(
    project: Path, github: GitHubApi, key: Path, written: str
) -> None:
    init(project, **APP, push=written, github_key=key)
    assert pushes(project) == "acme@65/images@74"


def test_a_token_reads_the_ids_too(project: Path, github: GitHubApi, key: Path) -> None:
    key.write_text(github.token)
    init(project, push="acme/images", github_key=key)
    assert pushes(project) == "acme@65/images@74"


@pytest.mark.parametrize(("flags", "message"), [
    ({}, "it is the key of an App that is not named"),
    ({**APP, "push": "acme/other"}, r"its ids cannot be read: .* answers 404"),
])  # fmt: skip
def test_ids_that_cannot_be_read_write_nothing(
    project: Path, github: GitHubApi, key: Path, flags: dict[str, str], message: str
) -> None:
    with pytest.raises(BadFlag, match=f"{message}(.|\n)*\n    expected: .*\n    fix: "):
        init(project, **({"push": "acme/images", "github_key": key} | flags))
    assert [path.name for path in project.iterdir()] == ["Pulumi.yaml"]


def test_without_ids_the_command_that_prints_them_is_next(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(project, push="acme/images")
    assert pushes(project) == "acme/images"
    assert "  gh api repos/acme/images --jq " in capsys.readouterr().out
    init(project, push="acme@65/images@74", overwrite=True)
    assert "gh api" not in capsys.readouterr().out


@pytest.mark.parametrize(("answers", "written"), [
    (["acme/images", "acme@65/other@74", "acme@65/images@74"], "acme@65/images@74"),
    (["acme/images", ""], "acme/images"),
    (["acme@65/images", "acme@65/images@74"], "acme@65/images@74"),
])  # fmt: skip
def test_a_terminal_is_asked_for_the_repository_and_its_ids(
    project: Path, monkeypatch: pytest.MonkeyPatch, answers: list[str], written: str
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join(["", *answers, "", "yes"]) + "\n"))
    monkeypatch.setattr(sys, "stderr", Terminal())
    init(project)
    assert pushes(project) == written

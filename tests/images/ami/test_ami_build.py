"""`inv ami.build`: a build is started once, followed to its end, left alone at Ctrl-C and found again."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.console.output import PRINTED_JSON
from paddock.errors import Interrupted
from paddock.images.ami.watch import LOG_LINES, Pace
from paddock.images.commands import ami_build
from paddock.images.commands.ami_build import BuildAmi
from paddock.images.errors import BuildError, BuildInputError
from tests.support.image_builder import AMI, BUILD, PIPELINE, REGION, Account, image, pipeline, step
from tests.support.performing import performed

OUTPUT_RESOURCES = {"outputResources": {"amis": [{"region": REGION, "image": AMI}]}}


class Clock:
    """Time that passes only when somebody waits."""

    def __init__(self, interrupt_at: float = float("inf")) -> None:
        self.time, self.waits, self.interrupt_at = 0.0, list[float](), interrupt_at

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.waits.append(seconds)
        if self.time >= self.interrupt_at:
            raise KeyboardInterrupt

    def pace(self, **more: float) -> Pace:
        return Pace(sleep=self.sleep, now=lambda: self.time, **more)


@pytest.fixture
def account() -> Iterator[Account]:
    stubbed_account = Account()
    try:
        yield stubbed_account
        stubbed_account.assert_all_requested()
    finally:
        stubbed_account.close()


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Path:
    """The repository's example stack, with a pipeline for machine images."""
    shutil.copy(root / "Pulumi.yaml", tmp_path)
    text = (root / "Pulumi.dev.yaml").read_text()
    (tmp_path / "Pulumi.dev.yaml").write_text(f"{text.rstrip()}\n    images: {{ami: {{enabled: true}}}}\n")
    return tmp_path


@pytest.fixture
def build(project: Path, account: Account) -> Callable[..., Clock]:
    def run(clock: Clock | None = None, **options: Any) -> Clock:
        clock = clock or Clock()
        pace = options.pop("pace", clock.pace())
        performed(ami_build.build, project, BuildAmi(**options), aws=account.aws, pace=pace)
        return clock

    return run


def a_whole_build(account: Account) -> None:
    """A build from its first step to its image, in three looks."""
    launched = step("LaunchBuildInstance", "COMPLETED", "01:00", "02:05")
    account.poll("BUILDING", ("BUILD", [step("LaunchBuildInstance", "RUNNING", "01:00"), step("Apply", "PENDING")]))
    account.poll("TESTING", ("BUILD", [launched]), ("TEST", [step("ApplyTest", "RUNNING", "20:00")]))
    account.poll(
        "AVAILABLE",
        ("BUILD", [launched]),
        ("TEST", [step("ApplyTest", "COMPLETED", "20:00", "31:30")]),
        **OUTPUT_RESOURCES,
    )


def test_a_build_is_started_followed_and_reported(
    build: Callable[..., Clock], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.pipelines([pipeline("another")], [pipeline()])  # Image Builder cannot filter by tag
    account.builds(image("FAILED"), image("AVAILABLE", f"{BUILD[:-1]}2"))
    account.start()
    a_whole_build(account)
    account.ami(driver="580.159.03", kubernetes="1.35")

    clock = build()

    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        f"{AMI}  {REGION}",
        "    driver: 580.159.03",
        "    kubernetes: 1.35",
        f"next: ./inv ami.promote {AMI} --stack dev",
    ]
    assert [line.split() for line in printed.err.splitlines()] == [
        [BUILD],
        ["1:00", "BUILD", "LaunchBuildInstance", "running"],
        ["2:05", "BUILD", "LaunchBuildInstance", "completed", "after", "1:05"],
        ["20:00", "TEST", "ApplyTest", "running"],
        ["31:30", "TEST", "ApplyTest", "completed", "after", "11:30"],
    ]
    assert clock.waits == [15.0, 15.0]


def test_a_failed_build_shows_its_step_and_log(
    build: Callable[..., Clock], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = step("ApplyTestComponents", "FAILED", "20:00", "21:00", "Step failed.")
    account.pipelines([pipeline()])
    account.builds()
    account.start()
    account.poll(
        "FAILED",
        ("BUILD", [step("LaunchBuildInstance", "COMPLETED", "01:00", "02:00")]),
        ("TEST", [failed, step("Later", "CANCELLED")]),
        state={"reason": "Workflow failed."},
    )
    account.step_outputs(failed, "paddock-validate: driver is 570.1, asked was 580.159.03")
    account.log(*(f"line {number}" for number in range(40)), "nvidia-smi\x1b[31m: not found\n\nexit 9")

    with pytest.raises(BuildError) as raised:
        build(json=PRINTED_JSON)

    assert raised.value.exit_code == 1
    lines = str(raised.value).splitlines()
    assert lines[0] == "the build of gpu-ami-recipe-5d6e7f8 1.4.2/1 failed in step ApplyTestComponents (TEST)"
    assert lines[1:3] == ["    paddock-validate: driver is 570.1, asked was 580.159.03", "    Workflow failed."]
    assert "/aws/imagebuilder/gpu-ami-recipe-5d6e7f8, 1.4.2/1" in lines[3]
    assert [line.strip() for line in lines[-3:-1]] == ["nvidia-smi [31m: not found", "exit 9"]
    assert lines[-1].startswith("    fix: correct that, with pulumi up where a setting or a script changed; ")
    assert lines[-1].endswith("; ./inv ami.build --stack dev starts a new build")
    document = json.loads(capsys.readouterr().out)
    assert document["error"] == str(raised.value)
    assert (document["status"], document["failed_step"], document["images"]) == ("FAILED", "ApplyTestComponents", [])
    assert len(document["log"]) == LOG_LINES
    assert document["log"][-1] == "exit 9"


def test_a_failure_without_a_log_shows_the_message_of_image_builder(
    build: Callable[..., Clock], account: Account
) -> None:
    context = {"componentFailure": {"componentArn": "arn:c", "phaseName": "build", "errorMessage": "exit code 3"}}
    account.pipelines([pipeline()])
    account.builds()
    account.start()
    account.poll("FAILED", state={"failureContext": context})
    account.refuse("get_log_events", "ResourceNotFoundException", service="logs")
    with pytest.raises(
        BuildError, match=r"ended as FAILED\n    component arn:c, phase build: exit code 3\n.*its log: th"
    ):
        build()


def test_ctrl_c_leaves_the_build_running_and_prints_how_to_resume(
    build: Callable[..., Clock], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.pipelines([pipeline()])
    account.builds()
    account.start()
    account.poll("BUILDING", ("BUILD", [step("LaunchBuildInstance", "RUNNING", "01:00")]))
    with pytest.raises(Interrupted) as raised:
        build(Clock(interrupt_at=1))
    assert raised.value.exit_code == 130
    command = next(line for line in str(raised.value).splitlines() if "resume" in line).split()
    assert command[1:6] == ["./inv", "ami.build", "--stack", "dev", "--execution"]
    assert "--cancel" in str(raised.value)

    account.get_named("BUILDING")  # no second build is started
    a_whole_build(account)
    account.ami()
    build(execution=command[6])
    assert f"ami.promote {AMI}" in capsys.readouterr().out


def test_sigterm_is_reported_as_ctrl_c(build: Callable[..., Clock], account: Account) -> None:
    class Terminated(Clock):
        def sleep(self, seconds: float) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    account.get_named("BUILDING")
    account.poll("BUILDING")
    with pytest.raises(Interrupted, match=r"resume: .*--execution arn"):
        build(Terminated(), execution=BUILD)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_build_in_progress_is_followed_and_no_second_one_started(
    build: Callable[..., Clock], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.pipelines([pipeline()])
    account.builds(image("FAILED", f"{BUILD[:-1]}0"), image("BUILDING"))
    a_whole_build(account)
    account.ami()
    build(json=PRINTED_JSON)
    printed = capsys.readouterr()
    assert "is building 1.4.2/1 already" in printed.err
    document = json.loads(printed.out)
    assert (document["execution"], document["status"]) == (BUILD, "AVAILABLE")
    assert [step["status"] for step in document["steps"]] == ["COMPLETED", "COMPLETED"]
    assert document["images"][0]["id"] == AMI


def test_new_starts_a_second_build_and_no_wait_follows_none(
    build: Callable[..., Clock], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.pipelines([pipeline()])
    account.start()
    build(new=True, no_wait=True)
    printed = capsys.readouterr()
    assert printed.out == f"{BUILD}\n"
    assert f"--execution {BUILD}" in printed.err
    account.pipelines([pipeline()])
    account.start()
    build(new=True, no_wait=True)
    assert len(set(account.tokens)) == 2, "Image Builder would take the second request for the first"


def test_a_pipeline_of_another_minor_is_named_before_it_builds(
    build: Callable[..., Clock], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.pipelines([pipeline(kubernetes="1.35")])
    account.start()
    build(new=True, no_wait=True)
    assert "gpu-ami-1a2b3c4 builds for Kubernetes 1.35 until pulumi up; Pulumi.dev.yaml says 1.36" in (
        capsys.readouterr().err
    )


def test_the_latest_build_can_be_asked_for_without_its_name(build: Callable[..., Clock], account: Account) -> None:
    older = image("AVAILABLE", f"{BUILD[:-1]}9") | {"dateCreated": "2026-08-20T10:00:00.000Z"}
    account.pipelines([pipeline()])
    account.builds(older, image("AVAILABLE"))
    account.poll("AVAILABLE", **OUTPUT_RESOURCES)
    account.ami()
    build(execution="latest")


def test_a_build_is_cancelled_and_seen_to_its_end(
    build: Callable[..., Clock], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.pipelines([pipeline()])
    account.builds(image("BUILDING"))
    account.get("BUILDING")
    account.cancel()
    account.poll("BUILDING")
    account.poll("CANCELLED")
    build(cancel=True)
    assert capsys.readouterr().out == "cancelled\n"


def test_a_cancelled_build_is_reported_as_json_too(
    build: Callable[..., Clock], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.get_named("CANCELLED")
    account.get("CANCELLED")
    account.poll("CANCELLED")
    build(cancel=True, execution=BUILD, json=PRINTED_JSON)
    assert json.loads(capsys.readouterr().out)["status"] == "CANCELLED"


def test_an_unknown_build_is_reported_as_a_wrong_name(build: Callable[..., Clock], account: Account) -> None:
    account.refuse("get_image", "ResourceNotFoundException")
    with pytest.raises(BuildInputError, match=f"this account does not have build {BUILD}"):
        build(execution=BUILD)


def test_a_build_that_somebody_cancelled_made_no_image(build: Callable[..., Clock], account: Account) -> None:
    account.get_named("TESTING")
    account.poll("CANCELLED", state={"reason": "Cancelled by a user"})
    account.log()
    with pytest.raises(BuildError, match="ended as CANCELLED\n    Cancelled by a user") as raised:
        build(execution=BUILD)
    assert raised.value.exit_code == 1
    assert str(raised.value).endswith("\n    fix: ./inv ami.build --stack dev starts a new build")


@pytest.mark.parametrize(
    ("running", "message"),
    [((), "no builds in progress"), (("1", "2"), r"(?s)2 builds in progress.*1\.4\.2/2.*1\.4\.2/1")],
)
def test_an_ambiguous_build_is_not_cancelled(
    running: tuple[str, ...], message: str, build: Callable[..., Clock], account: Account
) -> None:
    account.pipelines([pipeline()])
    account.builds(*(image("BUILDING", f"{BUILD[:-1]}{number}") for number in running))
    with pytest.raises(BuildInputError, match=message):
        build(cancel=True)


def test_a_build_that_has_ended_is_not_cancelled(build: Callable[..., Clock], account: Account) -> None:
    account.get_named("AVAILABLE")
    account.get("AVAILABLE")
    with pytest.raises(BuildInputError, match="has ended as AVAILABLE"):
        build(cancel=True, execution=BUILD)


def test_an_image_for_other_regions_only_is_none(build: Callable[..., Clock], account: Account) -> None:
    account.get_named("DISTRIBUTING")
    account.poll("AVAILABLE", outputResources={"amis": [{"region": "eu-west-1", "image": AMI}]})
    with pytest.raises(BuildError, match=f"left no image in {REGION}\n    fix: pulumi up --stack dev"):
        build(execution=BUILD)


def test_an_image_that_cannot_be_described_is_still_reported(
    build: Callable[..., Clock], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.get_named("DISTRIBUTING")
    account.poll("AVAILABLE", **OUTPUT_RESOURCES)
    account.refuse("describe_images", "UnauthorizedOperation", service="ec2")
    build(execution=BUILD)
    printed = capsys.readouterr()
    assert f"ami.promote {AMI}" in printed.out
    assert "denies ec2:DescribeImages" in printed.err


def test_a_throttled_request_is_retried_after_a_longer_wait(
    build: Callable[..., Clock], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.get_named("BUILDING")
    account.refuse("get_image", "CallRateLimitExceededException")
    account.refuse("get_image", "ServiceUnavailableException")
    account.poll("BUILDING")
    account.poll("AVAILABLE", **OUTPUT_RESOURCES)
    account.ami()
    clock = build(execution=BUILD)
    assert clock.waits == [30.0, 60.0, 15.0]
    assert "AWS throttles imagebuilder:GetImage" in capsys.readouterr().err


def test_silence_has_an_end(build: Callable[..., Clock], account: Account) -> None:
    account.get_named("BUILDING")
    for _ in range(4):
        account.refuse("get_image", "ServiceUnavailableException", "try later")
    clock = Clock()
    with pytest.raises(BuildError, match=r"(?s)try later.*resume: .*--execution arn"):
        build(execution=BUILD, pace=clock.pace(silence_s=200))


def test_a_silence_is_counted_from_the_last_answer(build: Callable[..., Clock], account: Account) -> None:
    account.get_named("BUILDING")
    for _ in range(20):
        account.poll("BUILDING")
    account.refuse("get_image", "CallRateLimitExceededException")
    account.poll("AVAILABLE", **OUTPUT_RESOURCES)
    account.ami()
    clock = Clock()
    build(clock, execution=BUILD, pace=clock.pace(silence_s=200))
    assert clock.time > 200


def test_a_build_that_takes_too_long_is_left_running(build: Callable[..., Clock], account: Account) -> None:
    account.get_named("BUILDING")
    for _ in range(5):
        account.poll("BUILDING")
    clock = Clock()
    with pytest.raises(BuildError, match=r"(?s)not ended after 1:00\nthe build continues in AWS.*resume:") as raised:
        build(execution=BUILD, pace=clock.pace(at_most_s=60.0))
    assert raised.value.exit_code == 1


def test_credentials_that_expire_while_it_builds_do_not_lose_it(build: Callable[..., Clock], account: Account) -> None:
    account.get_named("BUILDING")
    account.poll("BUILDING")
    account.refuse("get_image", "ExpiredTokenException", "The security token included in the request is expired")
    with pytest.raises(BuildInputError, match=r"(?s)expired.*aws sso login.*resume: .*--execution arn"):
        build(execution=BUILD)


def test_without_a_pipeline_it_says_what_to_do(build: Callable[..., Clock], account: Account, project: Path) -> None:
    account.pipelines([pipeline("another")])
    with pytest.raises(BuildInputError, match=r"not deployed yet.*\n    expected: .*\n    fix: pulumi up --stack dev"):
        build()
    file = project / "Pulumi.dev.yaml"
    file.write_text(file.read_text().replace("{enabled: true}", "{enabled: false}"))
    with pytest.raises(BuildInputError, match=r"enabled is not set\n    expected: images.*\n    fix: .* --stack dev$"):
        build()


def test_two_pipelines_of_one_fleet_are_both_named(build: Callable[..., Clock], account: Account) -> None:
    account.pipelines([pipeline(), pipeline(arn=f"{PIPELINE}-old")])
    with pytest.raises(BuildError, match="gpu-ami-1a2b3c4 and gpu-ami-1a2b3c4-old") as raised:
        build()
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(("execution", "message"), [
    ("run-7", "'run-7' names no build"),
    (BUILD.replace(REGION, "eu-west-1"), "the build is in eu-west-1, and the stack in us-west-2"),
])  # fmt: skip
def test_an_invalid_name_sends_no_request(execution: str, message: str, build: Callable[..., Clock]) -> None:
    with pytest.raises(BuildInputError, match=message):
        build(execution=execution)


def test_another_fleets_build_is_neither_followed_nor_cancelled(build: Callable[..., Clock], account: Account) -> None:
    account.get_named("BUILDING", fleet="paddock-prod")
    with pytest.raises(BuildInputError, match="builds for paddock-prod, not for paddock-dev"):
        build(execution=BUILD, cancel=True)


@pytest.mark.parametrize(("options", "message"), [
    ({"new": True, "execution": BUILD}, "--new and --execution"),
    ({"new": True, "cancel": True}, "--new and --cancel"),
    ({"timeout_minutes": 1441}, "--timeout-minutes: 1441\n    expected: at most 1440\n    fix: leave it out"),
])  # fmt: skip
def test_options_that_exclude_each_other(options: dict[str, Any], message: str, build: Callable[..., Clock]) -> None:
    with pytest.raises(BuildInputError, match=message):
        build(**options)


def test_a_stack_whose_images_another_one_holds_names_it(project: Path) -> None:
    file = project / "Pulumi.dev.yaml"
    file.write_text(f"{file.read_text()}    layers: {{images: acme/paddock/images}}\n")
    with pytest.raises(BuildInputError, match="with --stack images"):
        performed(ami_build.build, project, BuildAmi())

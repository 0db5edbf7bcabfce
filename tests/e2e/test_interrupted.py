"""A run of the engine may break off at any moment: the next one goes on, and nothing is doubled or left behind.

Stand-ins take the place of the clouds. One stack, dev, is made and taken down again; both are broken off many times.
"""

from __future__ import annotations

import logging
import operator
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml

from paddock.fleet.stackfile.loader import load
from paddock.lab.stack.engine import ROOT, YES, Engine, EngineError, Programs
from paddock.lab.stack.recovery import Recovered, recover
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.resource_types import CUSTOM_RESOURCE_DEFINITION
from paddock.pulumi_cli.stack import Run
from tests.support.engine import deployment, destroy, export, interrupt, kill
from tests.support.explore import count

pytestmark = pytest.mark.e2e

KILLS = count(3, 20)
SEED = int(os.environ.get("PADDOCK_SEED") or count(31, random.SystemRandom().randrange(1_000_000)))
"""Of the moments at which runs break off; it is printed with a failure, and set again with PADDOCK_SEED."""
SLOW = [{"operation": operation, "delay": 0.03, "lag": 0.1} for operation in ("create", "delete")]
"""So that a kill may fall before a deed, or between the deed and its answer; which of them it was is left to chance."""


class Walk:
    """One stack through its life. Each part runs once, after the one before it, and gives what each kill left."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.random = engine, random.Random(SEED)
        config: dict[str, Any] = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]
        config["paddock:fleet"]["cluster"]["deletionProtection"] = False
        engine.prepare(config, {"paddock:githubAppKey": "made-up"})
        engine.faults = [*SLOW]
        self.planned = plan_graph(load(ROOT, "dev")).resources
        self.total = sum(in_a_cloud(resource.custom, resource.type) for resource in self.planned.values())

    @cached_property
    def created(self) -> list[Recovered]:
        logging.getLogger(__name__).warning("PADDOCK_SEED=%s", SEED)
        self.interrupted(self.engine.up, partial(operator.le, 5))
        moments = sorted(self.random.sample(range(8, self.total - 8), KILLS))
        recovered = [self.killed(self.engine.up, partial(operator.le, moment)) for moment in moments]
        self.engine.faults = []
        self.engine.up()
        return recovered

    @cached_property
    def destroyed(self) -> list[Recovered]:
        assert self.created
        logging.getLogger(__name__).warning("PADDOCK_SEED=%s", SEED)
        down = partial(destroy, self.engine, protected=True)
        self.engine.faults = [*SLOW]
        self.interrupted(down, partial(operator.ge, self.total - 5))
        moments = sorted(self.random.sample(range(8, self.total - 8), KILLS), reverse=True)
        recovered = [self.killed(down, partial(operator.ge, moment)) for moment in moments]
        down()
        return recovered

    def killed(self, run: Callable[[], Run], reached: Callable[[int], bool]) -> Recovered:
        """Kill a run, and return the resources before and after the recovery."""
        # Where the last run came further than that already, this one is killed while it starts.
        pause = self.random.uniform(0, 0.5 if reached(len(existing(self.engine))) else 0.1)

        def kill_when_reached() -> bool:
            if reached(len(existing(self.engine))):
                time.sleep(pause)
                kill(self.engine)
            return False  # until it is dead: it may not have begun

        with pytest.raises(EngineError, match="was killed"), in_background(kill_when_reached):
            run()
        deployment_, created = deployment(self.engine), existing(self.engine)
        pending = {
            operation["resource"]["urn"]: operation["type"] for operation in deployment_.get("pending_operations", [])
        }
        recorded = consistent(deployment_)
        missing = recorded.keys() - created.keys()
        assert {pending.get(created[key]) for key in created.keys() - recorded.keys()} <= {"creating"}
        assert {pending.get(recorded[key]) for key in missing} <= {"deleting"}

        recovered = recover(self.engine)

        after = deployment(self.engine)
        assert not after.get("pending_operations")
        assert consistent(after) == created
        assert not recovered.doubled
        return recovered

    def interrupted(self, run: Callable[[], Run], reached: Callable[[int], bool]) -> None:
        """Interrupt a run, which loses nothing."""

        def interrupt_once_reached() -> bool:
            if reached_state := reached(len(existing(self.engine))):
                interrupt(self.engine)
            return reached_state

        with pytest.raises(EngineError, match=r"cancel|interrupted|EOF"), in_background(interrupt_once_reached):
            run()
        deployment_ = deployment(self.engine)
        assert not deployment_.get("pending_operations")
        assert consistent(deployment_).keys() == existing(self.engine).keys()


@pytest.fixture(scope="module")
def walk(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Walk:
    return Walk(Engine(tmp_path_factory.mktemp("lab"), programs, stack="dev"))


@pytest.mark.xdist_group("interrupted")
@pytest.mark.at_length
def test_an_up_that_is_killed_again_and_again_makes_everything_once(walk: Walk) -> None:
    assert len(walk.created) == KILLS
    created = consistent(deployment(walk.engine))
    assert created == existing(walk.engine)
    assert sorted(created.values()) == sorted(
        u for u, resource in walk.planned.items() if in_a_cloud(resource.custom, resource.type)
    )
    assert walk.engine.up().changes == {}
    assert walk.engine.run("refresh", *YES).changes == {}


@pytest.mark.xdist_group("interrupted")
@pytest.mark.at_length
def test_a_destroy_that_is_killed_again_and_again_leaves_nothing(walk: Walk) -> None:
    assert len(walk.destroyed) == KILLS
    assert export(walk.engine) == {}
    assert existing(walk.engine) == {}


PROGRAM = """
import pulumi
import pulumi_aws as aws

cloud = pulumi.ResourceOptions(provider=aws.Provider("aws", region="us-west-2"))
for name in ("a", "b", "c", "d"):
    aws.iam.Role(name, assume_role_policy="{}", opts=cloud)
"""
IN_TURN = """
import pulumi
import pulumi_aws as aws

cloud, before = aws.Provider("aws", region="us-west-2"), []
for name in ("a", "b", "c", "d"):
    opts = pulumi.ResourceOptions(provider=cloud, depends_on=before)
    before = [aws.iam.Role(name, assume_role_policy="{}", opts=opts)]
"""


@pytest.fixture
def small(programs: Programs, tmp_path: Path) -> Engine:
    """Return a program of four resources whose names are made up."""
    root = tmp_path / "root"
    (root / "program").mkdir(parents=True)
    (root / "Pulumi.yaml").write_text("name: paddock\nruntime: {name: python}\nmain: program/\n")
    (root / "Pulumi.small.yaml").write_text("config: {}\n")
    (root / "program" / "__main__.py").write_text(PROGRAM)
    engine = Engine(tmp_path / "state", programs, stack="small", root=root)
    engine.prepare()
    return engine


def test_recovery_adopts_unrecorded_resources_and_drops_uncreated_ones(small: Engine) -> None:
    small.faults = [
        {"resource": "*::a", "operation": "create", "lag": 60},
        {"resource": "*::b", "operation": "create", "delay": 60},
    ]

    def kill_between_deed_and_answer() -> bool:
        deployment_ = deployment(small)
        recorded = names(resource["urn"] for resource in deployment_.get("resources") or [])
        pending = names(operation["resource"]["urn"] for operation in deployment_.get("pending_operations") or [])
        if {"c", "d"} <= recorded and pending == {"a", "b"} and len(small.created_resources()) == 3:
            kill(small)
        return False

    with pytest.raises(EngineError, match="was killed"), in_background(kill_between_deed_and_answer):
        small.up()
    small.faults = []

    recovered = recover(small)

    assert (names(recovered.adopted), names(recovered.dropped), recovered.doubled) == ({"a"}, {"b"}, ())
    assert small.created_resources() == consistent(deployment(small))
    small.up()
    assert small.created_resources() == consistent(deployment(small))
    assert len(small.created_resources()) == 4


def test_resources_created_twice_after_a_kill_are_deleted_by_recovery(small: Engine) -> None:
    small.faults = [{"resource": "*::[ab]", "operation": "create", "lag": 60}]

    def kill_when_made() -> bool:
        recorded = names(resource["urn"] for resource in deployment(small).get("resources") or [])
        if {"c", "d"} <= recorded and len(small.created_resources()) == 4:
            kill(small)
        return False

    with pytest.raises(EngineError, match="was killed"), in_background(kill_when_made):
        small.up()
    small.faults = []
    with pytest.raises(EngineError, match="locked"):
        small.up()
    small.command("cancel", "--yes")
    # The engine says that it does not know, and makes both again.
    assert "2 pending operations" in small.up().log
    assert len(small.created_resources()) == 6

    recovered = recover(small)
    assert names(recovered.doubled) == {"a", "b"}
    assert {operation for operations in small.up().changes.values() for operation in operations} == {"delete-replaced"}

    assert small.created_resources() == consistent(deployment(small))
    assert len(small.created_resources()) == 4


def test_throttling_is_reported_and_every_up_gets_further(small: Engine) -> None:
    """The real provider tries again by itself for minutes; this is what is left when it gives up."""
    # Each after the one before: of those side by side the engine begins none after the first refusal.
    (small.root / "program" / "__main__.py").write_text(IN_TURN)
    for refused, made in (("b", {"a"}), ("d", {"a", "b", "c"})):
        fault = {"operation": "create", "error": "ThrottlingException: Rate exceeded"}
        small.faults = [{"resource": f"*::[{refused}-d]", **fault}]
        with pytest.raises(EngineError, match=rf"{refused}: .*ThrottlingException: Rate exceeded") as error:
            small.up()
        assert "Traceback" not in str(error.value)
        assert small.created_resources() == consistent(deployment(small))
        assert names(small.created_resources().values()) == made
    small.faults = []
    assert names(urn for urn, steps in small.up().changes.items() if "create" in steps) == {"d"}
    assert small.created_resources() == consistent(deployment(small))
    assert len(small.created_resources()) == 4


def names(urns: Iterable[str]) -> set[str]:
    return {urn.rpartition("::")[2] for urn in urns}


def consistent(deployment: Mapping[str, Any]) -> dict[str, str]:
    """Return the cloud resources of the state: type and id -> URN. Fails where the state contradicts itself."""
    seen_urns: set[str] = set()
    clouds: dict[str, str] = {}
    for resource in deployment.get("resources") or []:
        behind = {resource.get("parent"), *resource.get("dependencies", ())}
        behind |= {urn for urns in resource.get("propertyDependencies", {}).values() for urn in urns}
        behind |= {resource.get("provider", "").rpartition("::")[0]}
        assert {urn for urn in behind if urn} <= seen_urns, resource["urn"]
        assert resource["urn"] not in seen_urns
        seen_urns.add(resource["urn"])
        if in_a_cloud(resource.get("custom", False), resource["type"]):
            clouds[f"{resource['type']} {resource['id']}"] = resource["urn"]
    return clouds


def in_a_cloud(custom: bool, type_: str) -> bool:
    """Return whether a provider creates and deletes a resource. CRDs stay."""
    return custom and not type_.startswith("pulumi:") and type_ != CUSTOM_RESOURCE_DEFINITION


def existing(engine: Engine) -> dict[str, str]:
    """Return what the stand-ins created and have not deleted: type and id -> URN."""
    return {key: urn for key, urn in engine.created_resources().items() if in_a_cloud(True, key.split(" ", 1)[0])}


@contextmanager
def in_background(action: Callable[[], bool]) -> Iterator[None]:
    """Call it repeatedly, until it returns true or the block ends."""
    over = Event()

    def act() -> None:
        with suppress(ProcessLookupError):  # the run ended in between
            while not over.wait(0.01) and not action():
                pass

    thread = Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

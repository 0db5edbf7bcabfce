"""Limits of a replica: the mode of `serve.load`, the memory of its model, and the priority of its threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.models.shapes import shape
from paddock.modes.admission import Room
from paddock.modes.config import PRESETS, ResourceConfig
from paddock.modes.errors import ModeInputError
from paddock.serve.cli.modes import load_mode
from paddock.serve.engine.limits import admit_model, resource_mode
from paddock.serve.engine.loop import Loop, Token
from paddock.serve.engine.pace import Pace
from paddock.serve.errors import ServeError, ServeInputError
from paddock.serve.own.protocol import Spec
from tests.support.packages import need

DEADLINE_S = 60
GIB = 2**30


def test_a_mode_decides_concurrency_and_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDOCK_DEPLOYMENT_MODE", raising=False)
    assert (load_mode("").name, load_mode("").concurrency(None)) == ("aggressive", 4)
    assert (load_mode("conservative").reserve, load_mode("conservative").concurrency(None)) == (0.5, 2)
    monkeypatch.setenv("PADDOCK_DEPLOYMENT_MODE", "desktop")
    assert load_mode("").name == "conservative"


@pytest.mark.parametrize(
    ("name", "concurrency", "message"),
    [
        ("agressive", None, "did you mean aggressive"),
        ("conservative", 3, "allows 2 requests side by side"),
    ],
)
def test_a_mode_that_cannot_be_is_refused(name: str, concurrency: int | None, message: str) -> None:
    with pytest.raises(ServeInputError, match=message):
        load_mode(name).concurrency(concurrency)


def test_a_policy_of_a_file_reaches_the_replica(tmp_path: Path) -> None:
    file = tmp_path / "night.yaml"
    file.write_text(
        'mode: conservative\nresources: {max_batch_size: 3}\nschedule: [{start: "22:00", end: "06:00", mode: default}]'
    )
    mode = load_mode(str(file))
    assert (mode.name, mode.most, mode.reserve) == ("night", 4, 0.3)
    assert resource_mode(mode.text).resources.max_batch_size == 3
    assert resource_mode("").resources == PRESETS["aggressive"]
    file.write_text("each_user: {min_request_interval_ms: 500}")
    with pytest.raises(ServeInputError, match="each_user, which a replica does not keep"):
        load_mode(str(file))
    file.write_text("mode: fast")
    with pytest.raises(ModeInputError):
        load_mode(str(file))


def test_a_model_larger_than_its_part_is_refused_with_numbers() -> None:
    spec = Spec(shape("llama-3.1-8b"), "bf16", "cuda", 4, 4096)
    room = Room(24 * GIB, 23 * GIB)
    admit_model(spec, PRESETS["aggressive"], room)
    with pytest.raises(
        ServeError, match=r"needs 18\.\d GiB.*12\.0 GiB are allowed \(50% of 24\.0 GiB\).*int8"
    ) as error:
        admit_model(spec, PRESETS["conservative"], room)
    assert "\n" not in str(error.value)
    admit_model(spec, PRESETS["conservative"], room, ranks=2)
    with pytest.raises(ServeError, match=r"3\.0 GiB are free"):
        admit_model(replace(spec, dtype="int8"), PRESETS["aggressive"], Room(24 * GIB, 3 * GIB))


def test_a_stage_is_admitted_by_its_own_layers() -> None:
    spec, room = Spec(shape("llama-3.1-8b"), "bf16", "cuda", 1, 1024), Room(10 * GIB, 10 * GIB)
    admit_model(replace(spec, layers=(0, 16)), PRESETS["aggressive"], room)
    admit_model(replace(spec, layers=(16, 32)), PRESETS["aggressive"], room)
    for layers in (None, (0, 20)):
        with pytest.raises(ServeError, match="GiB are allowed"):
            admit_model(replace(spec, layers=layers), PRESETS["aggressive"], room)


class Recording:
    """Stand-in for the rows of a model: it notes how many run, and the priority of its thread."""

    slots = 4

    def __init__(self) -> None:
        self.count = self.most = 0
        self.nice: list[int] = []

    def join(self, ids: Sequence[int]) -> int:
        self.count += 1
        self.most = max(self.most, self.count)
        self.nice.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return 1

    def decode(self, tokens: Sequence[int]) -> list[int | None]:
        time.sleep(0.005)
        return [1] * self.count

    def leave(self, row: int) -> None:
        self.count -= 1


def test_a_mode_limits_batch_and_priority_in_a_stand_in() -> None:
    need("psutil")
    before = os.getpriority(os.PRIO_PROCESS, 0)
    config = ResourceConfig(process_priority=19, max_batch_size=2, min_request_interval_ms=0)
    rows = Recording()
    loop = Loop(rows, Pace(lambda: config))
    done = threading.Semaphore(0)

    def deliver(event: Token | ServeError) -> None:
        if isinstance(event, ServeError) or event.finish:
            done.release()

    for _ in range(6):
        loop.submit([1], 5, deliver)
    for _ in range(6):
        assert done.acquire(timeout=DEADLINE_S)
    statistics = loop.statistics()
    loop.close()
    assert (rows.most, set(rows.nice), statistics["answered"]) == (2, {19}, 6)
    assert loop.pace.paused_seconds > 0
    assert os.getpriority(os.PRIO_PROCESS, 0) == before

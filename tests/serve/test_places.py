"""Places at an instance: pauses of a mode, and the slots of the moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.packages import need

need("prometheus_client", "starlette")

from paddock.modes.config import PRESETS
from paddock.modes.policy import Policy, Share, Window
from paddock.serve.gateway.exchange import Who
from paddock.serve.gateway.places import Places


async def yes() -> bool:
    return True


async def rest(**row: Any) -> tuple[float, dict[str, Any]]:
    """Return the seconds from the end of a request of 50 ms to the start of the next one on the slot."""
    places = Places({"id": "a", "concurrency": 1, **row}, None)
    began = await places.enter(yes)
    await asyncio.sleep(0.05)
    places.leave(began)
    ended = asyncio.get_running_loop().time()
    return await places.enter(yes) - ended, places.statistics()


@pytest.mark.parametrize(
    ("row", "least"),
    [
        ({"mode": "conservative", "paced": True}, 0.033),  # 50 ms (1 / 0.6 - 1), and 100 ms from start to start
        ({"mode": "aggressive", "paced": True, "throttle": 0.1}, 0.0),  # this mode makes no pauses
        ({"mode": "default", "throttle": 0.2}, 0.2),  # 50 ms (1 / 0.2 - 1)
        ({"mode": "", "throttle": 0.1, "paced": True}, 0.0),
    ],
)
def test_a_slot_rests_by_its_mode_and_others_load(row: dict[str, Any], least: float) -> None:
    seconds, counts = asyncio.run(rest(**row))
    assert least <= seconds
    assert counts["throttled"] == (least > 0)
    assert (counts["paused_seconds"] > 0) is (least > 0)


def test_a_schedule_bounds_how_many_run_now() -> None:
    policy = Policy(schedule=(Window(start="00:00", end="00:00", mode="conservative"),))

    async def run() -> tuple[int, int]:
        places = Places({"id": "a", "concurrency": 8, "mode": policy.model_dump_json()}, None)
        tasks = [asyncio.create_task(places.enter(yes)) for _ in range(5)]
        await asyncio.sleep(0.35)  # the mode lets one begin every 100 ms
        counts = places.running, len(places.waiting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return counts

    assert asyncio.run(run()) == (2, 3)


def test_a_users_and_an_applications_limits_let_others_pass() -> None:
    policy = Policy(
        mode="aggressive", resources=PRESETS["aggressive"], users={"ada": Share(max_batch_size=1)},
        applications={"batch": Share(min_request_interval_ms=3_600_000)},
    )  # fmt: skip
    names = {"ada": Who(user="ada"), "bob": Who(user="bob"), "batch": Who("batch", "bob")}

    async def run() -> list[str]:
        places, began = Places({"id": "a", "concurrency": 8, "mode": policy.model_dump_json()}, None), list[str]()

        async def ask(name: str) -> float:
            moment = await places.enter(yes, names[name])
            began.append(name)
            return moment

        asked = [asyncio.create_task(ask(name)) for name in ("ada", "ada", "batch", "batch", "bob")]
        await asyncio.sleep(0.05)
        first = asked[0].result()
        places.leave(first, names["ada"])
        await asyncio.sleep(0.05)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        return began

    assert asyncio.run(run()) == ["ada", "batch", "bob", "ada"], "the second batch waits an hour"

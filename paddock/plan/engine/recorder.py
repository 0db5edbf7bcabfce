"""Runs the Pulumi program in-process and keeps every resource it declares: no engine, no cloud, no network.

The program is the one that `pulumi up` runs, through the SDK's own resource monitor, so there is no second
description of the infrastructure that could drift.
"""

from __future__ import annotations

import asyncio
import contextvars
import graphlib
import heapq
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
from pulumi.runtime import mocks, settings
from pulumi.runtime.config import set_all_config
from pulumi.runtime.stack import run_pulumi_func

from paddock.plan.engine import fake_cloud
from paddock.plan.engine.event_loop import EagerLoop
from paddock.plan.engine.graph import Graph, PlanError, Resource
from paddock.plan.engine.monitor import Monitor, NoMocks
from paddock.plan.engine.sdk import shortcuts
from paddock.plan.engine.values import UNKNOWN, Secret, is_plain, redact


def record(
    program: Callable[[], Any],
    *,
    project: str,
    stack: str,
    config: Mapping[str, str],
    secrets: frozenset[str] = frozenset(),
    preview: bool = False,
    account: str = fake_cloud.ACCOUNT,
    answers: fake_cloud.Answers = fake_cloud,
) -> Graph:
    """Run `program` and return the resources that it declared.

    `preview` plays the first preview of a stack, where ids and computed outputs are not known yet; otherwise
    they get stand-ins from `answers`, so that all of the program runs. Raises PlanError when the program refuses its
    configuration, and whatever else the program raises.
    """
    monitor = Monitor(preview, account, answers)

    async def main() -> dict[str, Any]:
        await run_pulumi_func(program)
        root = settings.get_root_resource()
        outputs = {}
        for key, value in getattr(root, "outputs", {}).items():
            if is_plain(value):
                outputs[key] = value
                continue
            output = pulumi.Output.from_input(value)
            outputs[key] = await output.future() if await output.is_known() else UNKNOWN
            if await output.is_secret():
                outputs[key] = Secret(outputs[key])
        return outputs

    def go() -> dict[str, Any]:  # the SDK keeps its settings in context variables
        loop = EagerLoop()
        # Tasks that die with the first error would be reported again when they are collected.
        loop.set_exception_handler(lambda _loop, _context: None)
        asyncio.set_event_loop(loop)
        try:
            set_all_config(dict(config), list(secrets))
            settings.ROOT.set(None)
            settings.SETTINGS.outputs = set()  # set_mocks() leaves the previous program's here
            mocks.set_mocks(NoMocks(), project=project, stack=stack, preview=preview, monitor=monitor, logger=_quiet())
            settings.SETTINGS.callbacks = monitor.transforms  # else the SDK starts a server to be called back on
            with shortcuts():
                return loop.run_until_complete(main())
        except pulumi.RunError as error:
            raise PlanError(str(error)) from None
        finally:
            pending = asyncio.all_tasks(loop)
            for task in pending:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            asyncio.set_event_loop(None)
            loop.close()

    outputs = contextvars.copy_context().run(go)
    lookups = sorted(monitor.lookups, key=lambda lookup: json.dumps(redact(lookup), sort_keys=True))
    return Graph(project, stack, _ordered(monitor.declared), outputs, tuple(lookups))


def _ordered(declared: Mapping[str, Resource]) -> dict[str, Resource]:
    """Return the resources in a fixed order: the SDK's tasks overtake each other, in another order on every run."""
    needs = {
        urn: declared.keys() & {resource.parent, resource.provider.rpartition("::")[0], *resource.dependencies}
        for urn, resource in declared.items()
    }
    sorter = graphlib.TopologicalSorter(needs)
    sorter.prepare()
    waiting: list[str] = list(sorter.get_ready())
    heapq.heapify(waiting)
    ordered = {}
    while waiting:
        urn = heapq.heappop(waiting)
        ordered[urn] = declared[urn]
        sorter.done(urn)
        for ready in sorter.get_ready():
            heapq.heappush(waiting, ready)
    return ordered


def _quiet() -> logging.Logger:
    logger = logging.getLogger("paddock.plan.program")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger

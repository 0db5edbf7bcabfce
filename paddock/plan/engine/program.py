"""Plans a stack: runs the fleet's own program and records what it declares."""

from __future__ import annotations

from paddock.fleet import Stack
from paddock.plan.engine import fake_cloud
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.recorder import record


def plan_graph(stack: Stack, *, preview: bool = False, answers: fake_cloud.Answers = fake_cloud) -> Graph:
    """Return the graph that `pulumi up` of this stack would apply.

    Encrypted configuration stays encrypted: the program gets a placeholder, marked as the secret it is. A
    credential that is not set yet gets one too; the plan's findings tell of it.
    """
    from infra.program import main

    needed = {"paddock:githubAppKey" if stack.fleet.github.app else "paddock:githubToken"}
    needed.update(stack.fleet.serving.config_secrets if stack.fleet.serving else ())
    secrets = stack.secrets | needed
    config = {**stack.config, **dict.fromkeys(secrets, "<not decrypted>")}
    return record(
        main,
        project=stack.project,
        stack=stack.name,
        config=config,
        secrets=frozenset(secrets),
        preview=preview,
        account=fake_cloud.ACCOUNT,
        answers=answers,
    )

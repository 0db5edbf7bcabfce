"""The lab's autoscaler, on an API whose answers get lost."""

from __future__ import annotations

from typing import Any, cast

import pytest

from paddock.kubernetes.errors import Unreachable
from paddock.lab.simulators import scaling
from paddock.lab.simulators.autoscaler import Autoscaler
from paddock.lab.simulators.scaling import Group


class Api:
    """An API server that deletes a node, and whose answer never comes."""

    def patch(self, *_: object) -> None: ...

    def list(self, *_: object, **__: object) -> list[Any]:
        return []

    def delete(self, _: object) -> None:
        raise Unreachable("no answer within 10 s")


def test_a_node_whose_deletion_is_not_confirmed_is_not_replaced() -> None:
    scaler = Autoscaler(Api(), groups=(Group("t4-spot", "t4", "spot", 0, 2),), here={"node": "t4-spot"})  # type: ignore[arg-type]  # three calls are all it needs
    with pytest.raises(Unreachable):
        scaler._give_back({"metadata": {"name": "node"}, "spec": {}})
    scaler._replace([], 1.0)
    assert scaler.booting == []


def test_a_node_is_given_back_after_an_attempt_that_failed() -> None:
    patches: list[Any] = []

    class Server:
        def patch(self, node: Any, change: Any) -> None:
            patches.append(change["spec"]["taints"])

        def list(self, *args: str, **selectors: str) -> list[Any]:
            return []

        def delete(self, item: Any) -> None:
            patches.append(item["metadata"]["name"])

    scaler = Autoscaler(cast("Any", Server()))
    scaler._give_back({"metadata": {"name": "node"}, "spec": {"taints": [scaling.TO_BE_DELETED]}})
    assert patches == [[scaling.TO_BE_DELETED], "node"]

"""The gateway's own program with the file that the fleet's program writes for it."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from infra.serving.gateway import configuration
from tests.support.fleets import SERVING, fleet_data, stack
from tests.support.packages import need

need("prometheus_client")

from paddock.serve.gateway import program


@pytest.mark.parametrize("limits", [{}, {"tokens": 100, "userRequests": 3, "userRequestsPerMinute": 7}])
def test_the_gateway_reads_what_a_fleet_writes(limits: dict[str, int], tmp_path: Path) -> None:
    fleet = stack(fleet_data(serving=deepcopy(SERVING) | {"limits": limits})).fleet
    assert fleet.serving is not None
    ((name, text),) = configuration(fleet.serving).items()
    keys, file = tmp_path / "keys", tmp_path / name
    keys.write_text("a-key-of-enough-letters\n")
    file.write_text(yaml.safe_dump(yaml.safe_load(text) | {"keysFile": str(keys)}))
    config = program.read(file)
    assert (config.address, [model.id for model in config.models]) == (("0.0.0.0", 8000), ["chat"])
    assert program.gateway(config, str(file))

"""Configuration of AWS ParallelCluster: checked requests, its real schema, and prices."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.slurm.cloud.parallelcluster import cluster_file, node_prices
from paddock.slurm.cloud.request import Cloud, check
from paddock.slurm.errors import SlurmInputError
from paddock.tasks.program import main

SUBNETS = ("subnet-0123456789abcdef0",)
PROGRAM = os.environ.get("PADDOCK_PCLUSTER")  # before the environment is cleaned
SCHEMA = """
import json, sys, yaml
from marshmallow import ValidationError
from pcluster.schemas.cluster_schema import ClusterSchema
for path in sys.argv[1:]:
    try:
        ClusterSchema(cluster_name="paddock").load(yaml.safe_load(open(path)))
        print(json.dumps(None))
    except ValidationError as error:
        print(json.dumps(error.normalized_messages()))
"""


def cluster(**changes: Any) -> Cloud:
    values = {"name": "paddock", "region": "us-east-1", "instances": ("g5.xlarge",), "subnets": SUBNETS}
    wanted = Cloud(**values | changes)  # type: ignore[arg-type]  # a table of values
    check(wanted)
    return wanted


def test_parallelclusters_own_schema_takes_every_form(tmp_path: Path) -> None:
    if not PROGRAM:
        pytest.skip("no pcluster (./inv test --e2e installs it)")
    forms = [
        cluster(),
        cluster(instances=("g4dn.xlarge", "p5.48xlarge", "m7i.large"), on_demand=True, key="me"),
        cluster(instances=("g6e.12xlarge",), subnets=(*SUBNETS, "subnet-0aaaaaaaaaaaaaaaa"), max=1),
    ]
    paths = [tmp_path / f"{number}.yaml" for number in range(len(forms) + 1)]
    for path, form in zip(paths, forms, strict=False):
        path.write_text(cluster_file(form).text)
    paths[-1].write_text(paths[0].read_text().replace("MaxCount", "MaxCounts"))
    finished = subprocess.run(
        [Path(PROGRAM).parent / "python", "-c", SCHEMA, *paths], capture_output=True, text=True, check=False,
        env={**os.environ, "AWS_DEFAULT_REGION": "us-east-1"},
    )  # fmt: skip
    *taken, refused = [json.loads(line) for line in finished.stdout.splitlines()]
    assert taken == [None] * len(forms), finished.stderr
    assert "MaxCounts" in json.dumps(refused)


def test_defaults_are_the_safe_ones() -> None:
    document = yaml.safe_load(cluster_file(cluster()).text)
    assert document["Imds"] == {"ImdsSupport": "v2.0"}
    assert document["HeadNode"]["Imds"] == {"Secured": True}
    assert "Ssh" not in document["HeadNode"]
    (queue,) = document["Scheduling"]["SlurmQueues"]
    assert document["HeadNode"]["LocalStorage"]["RootVolume"]["Encrypted"] is True
    assert queue["ComputeSettings"]["LocalStorage"]["RootVolume"]["Encrypted"] is True
    assert queue["ComputeResources"][0]["MinCount"] == 0


def test_processors_and_gpus_have_queues_of_their_own() -> None:
    document = yaml.safe_load(cluster_file(cluster(instances=("m7i.large", "g5.xlarge", "p5.48xlarge"))).text)
    queues = {queue["Name"]: queue["ComputeResources"] for queue in document["Scheduling"]["SlurmQueues"]}
    assert [row["Name"] for row in queues["gpu"]] == ["g5-xlarge", "p5-48xlarge"]
    assert [row["Name"] for row in queues["cpu"]] == ["m7i-large"]
    assert [row.get("Efa") for row in queues["gpu"]] == [None, {"Enabled": True}]


@pytest.mark.parametrize(("changes", "message"), [
    ({"instances": ("g5.xlarg",)}, "did you mean g5.xlarge"),
    ({"instances": ("g6f.large",)}, "fraction of a GPU"),
    ({"instances": ()}, "--instances is missing"),
    ({"subnets": ("subnet-1",)}, "subnet-0123456789abcdef0"),
    ({"subnets": ()}, "--subnets is missing"),
    ({"head_subnet": "vpc-1"}, "--head-subnet"),
    ({"region": "eu-central-11"}, "did you mean eu-central-1"),
    ({"max": 0}, "--max 0"),
    ({"max": 100_000}, "--max 100000"),
    ({"name": "1st"}, "--name"),
    ({"head": "m7i.huge"}, "--head"),
])  # fmt: skip
def test_a_wrong_value_is_named_with_its_flag(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SlurmInputError, match=message):
        cluster(**changes)


def test_a_price_that_nobody_read_is_unknown() -> None:
    head, node = node_prices(cluster(region="mx-central-1"))
    assert (node.instance, node.usd_per_hour, node.as_of) == ("g5.xlarge", None, None)
    head, node = node_prices(cluster())
    assert head.spot is False
    assert head.usd_per_hour
    assert node.usd_per_hour
    assert node.as_of


def test_a_file_that_was_there_is_kept_and_a_customised_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
    words = ["inv", "slurm.cloud", "g5.xlarge", SUBNETS[0]]
    file = tmp_path / "cluster.yaml"
    file.write_text("mine: true\n")
    assert main([*words, "--dry-run"]) == 0
    assert file.read_text() == "mine: true\n"
    assert main(words) == 0
    assert (tmp_path / "backups" / "cluster.yaml.1").read_text() == "mine: true\n"
    file.write_text("# USER_CUSTOMIZED=true\n")
    assert main(words) == 0
    assert file.read_text() == "# USER_CUSTOMIZED=true\n"

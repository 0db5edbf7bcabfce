"""`slurm.cloud`: the file, what its nodes cost, and the commands that start the cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddock.errors import printable
from paddock.slurm.cli.parameters import Cloud
from paddock.slurm.cloud.cost import NodePrice, node_prices
from paddock.slurm.cloud.parallelcluster import FILE, cluster_file
from paddock.slurm.cloud.request import ClusterRequest, request
from paddock.slurm.write.replacement import apply, changes
from paddock.terminal import JsonOutput, caller_path, json_errors


def cloud(flags: Mapping[str, Any]) -> int:
    """Write cluster.yaml and print the rest. Raises SlurmInputError, and SlurmError where it cannot be written."""
    parameters = Cloud.from_flags(flags)
    _cloud(parameters, json=JsonOutput.parse(parameters.json))
    return 0


@json_errors
def _cloud(parameters: Cloud, *, json: JsonOutput) -> None:
    cluster = request(
        name=parameters.name, region=parameters.region, instances=parameters.instances, subnets=parameters.subnets,
        head=parameters.head, head_subnet=parameters.head_subnet, max_nodes=parameters.max,
        spot=not parameters.on_demand, key=parameters.key,
    )  # fmt: skip
    file, prices = cluster_file(cluster), node_prices(cluster)
    path = caller_path(str(parameters.output or ".")) / FILE
    (change,) = changes((file,), path.parent)
    if not parameters.dry_run:
        backups = apply((change,), path.parent)
        sys.stderr.writelines(f"kept the file that was there as {backup}\n" for backup in backups)
    json.write(_document(path, file.text, prices, written=not parameters.dry_run))
    if not json.replaces_text:
        outcome = "left as it is: customised" if change.state == "customised" else change.state
        lines = file.text.splitlines() if parameters.dry_run else [f"{path}: {outcome}"]
        sys.stdout.writelines(f"{printable(line)}\n" for line in (*lines, *_after(cluster, path, prices)))


def _document(path: Path, text: str, prices: tuple[NodePrice, ...], *, written: bool) -> dict[str, Any]:
    return {
        "schema": 1,
        "file": str(path),
        "written": written,
        "text": text,
        "nodes": [
            {
                "instance": price.instance, "usd_per_hour": price.usd_per_hour, "spot": price.spot,
                "source": price.source, "as_of": price.as_of,
            }
            for price in prices
        ],
    }  # fmt: skip


def _after(cluster: ClusterRequest, path: Path, prices: tuple[NodePrice, ...]) -> Iterator[str]:
    head, *nodes = prices
    yield ""
    yield f"head node  {_amount(head)}, all the time"
    for node in nodes:
        yield f"node       {_amount(node)}, while it has jobs; at most {cluster.max_nodes}"
    yield "Volumes, traffic and logs come on top. Prices are the region's lowest known; a spot price moves."
    yield ""
    common = f"--cluster-name {cluster.name} --region {cluster.region}"
    yield f"start it:  pcluster create-cluster {common} --cluster-configuration {path}"
    yield f"end it:    pcluster delete-cluster {common}"


def _amount(price: NodePrice) -> str:
    if price.usd_per_hour is None:
        return f"{price.instance}: price unknown in this region"
    way = "spot" if price.spot else "on demand"
    return f"{price.instance}: ${price.usd_per_hour:.3f} an hour {way} ({price.as_of or 'date unknown'})"

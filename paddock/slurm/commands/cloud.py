"""`slurm.cloud`: the file, what its nodes cost, and the commands that start the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paddock.console.command import command
from paddock.console.output import caller_path
from paddock.console.report import Report
from paddock.slurm.cloud.parallelcluster import FILE, NodePrice, cluster_file, node_prices
from paddock.slurm.cloud.request import Cloud, check
from paddock.slurm.write.replacement import Change, apply, changes


@dataclass(frozen=True, kw_only=True)
class Written(Report):
    """The file, the prices of its nodes, and the versions of the file that were kept."""

    SCHEMA = 1
    cluster: Cloud
    path: Path
    change: Change
    written: bool
    backups: tuple[Path, ...]
    prices: tuple[NodePrice, ...]

    def text(self) -> Iterator[str]:
        outcome = "left as it is: customised" if self.change.state == "customised" else self.change.state
        yield from [f"{self.path}: {outcome}"] if self.written else self.change.file.text.splitlines()
        yield from _after(self.cluster, self.path, self.prices)

    def notes(self) -> Iterator[str]:
        yield from (f"kept the file that was there as {backup}" for backup in self.backups)

    def document(self) -> dict[str, Any]:
        return {
            "schema": self.SCHEMA,
            "file": str(self.path),
            "written": self.written,
            "text": self.change.file.text,
            "nodes": [asdict(price) for price in self.prices],
        }


@command()
def cloud(parameters: Cloud) -> Written:
    """Write cluster.yaml. Raises SlurmInputError, and SlurmError where it cannot be written."""
    check(parameters)
    file, prices = cluster_file(parameters), node_prices(parameters)
    path = (parameters.output or caller_path(".")) / FILE
    (change,) = changes((file,), path.parent)
    backups = () if parameters.dry_run else tuple(apply((change,), path.parent))
    return Written(
        cluster=parameters, path=path, change=change, written=not parameters.dry_run, backups=backups, prices=prices
    )


def _after(cluster: Cloud, path: Path, prices: tuple[NodePrice, ...]) -> Iterator[str]:
    head, *nodes = prices
    yield ""
    yield f"head node  {_amount(head)}, all the time"
    for node in nodes:
        yield f"node       {_amount(node)}, while it has jobs; at most {cluster.max}"
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

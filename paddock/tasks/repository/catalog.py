"""Facts, with their dates."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.tasks.common import task
from paddock.terminal import JSON_HELP, JsonOutput


@task(
    name="refresh",
    help={
        "region": "price this region only; by default every region that has prices",
        "dry-run": "ask AWS and report, write nothing",
        "json": JSON_HELP,
    },
)
def catalog_refresh(c: Context, region: str = "", dry_run: bool = False, json: str | None = None) -> None:
    """Bring the catalogue's AWS facts up to date with the credentials of the environment."""
    from paddock.catalog import cli

    if cli.refresh(region or None, dry_run=dry_run, json=JsonOutput.parse(json)):
        raise Exit(code=1)


@task(
    name="instances",
    help={
        "gpus": "at least this many GPUs",
        "min-memory": "GiB of GPU memory, at least",
        "gpu": "this GPU alone, such as t4 or a100-40gb",
        "region": "prices of this region",
        "max-price": "at most this many USD an hour, on demand",
        "sort": "price, spot, name, gpu-memory, vcpus or price-per-gpu",
        "all": "every row",
        "json": JSON_HELP,
    },
)
def catalog_instances(
    c: Context,
    gpus: int = 1,
    min_memory: float = 0.0,
    gpu: str = "",
    region: str = "us-west-2",
    max_price: float = 0.0,
    sort: str = "price",
    all: bool = False,
    json: str | None = None,
) -> None:
    """List GPU instance types with their prices."""
    from paddock.catalog import cli

    cli.instances(
        gpus=gpus,
        min_memory=min_memory,
        gpu=gpu,
        region=region,
        max_price=max_price,
        sort=sort,
        everything=all,
        json=JsonOutput.parse(json),
    )

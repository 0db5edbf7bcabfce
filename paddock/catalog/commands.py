"""`catalog`, GPU instance types with their prices, and `catalog.refresh`, which reads AWS's facts again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from paddock.catalog import table
from paddock.catalog.instances import price_sources
from paddock.catalog.table import Row
from paddock.console import table as console_table
from paddock.console.command import command
from paddock.console.output import BadFlag
from paddock.console.parameters import Parameters, parameter
from paddock.console.report import Report

_LIMIT = 25
_BANDS = ("< 5 %", "5-10 %", "10-15 %", "15-20 %", "> 20 %")
_HEAD = ("Instance", "GPU", "GiB each", "vCPU", "GiB", "NVMe GB", "USD/h", "spot", "save", "interrupted", "pods")
_DROPPED = ("pods", "NVMe GB", "save", "GiB", "interrupted", "vCPU", "GiB each")
"""Columns in the order in which a narrow terminal loses them."""


@dataclass(frozen=True, kw_only=True)
class CatalogParameters(Parameters):
    """Parameters of `catalog`."""

    gpus: int = parameter(1, "at least this many GPUs", ge=0)
    min_memory: float = parameter(0.0, "GiB of GPU memory, at least", ge=0)
    gpu: str = parameter("", "this GPU alone, such as t4 or a100-40gb")
    region: str = parameter("us-west-2", "prices of this region")
    max_price: float = parameter(0.0, "at most this many USD an hour, on demand", ge=0)
    sort: Literal["price", "spot", "name", "gpu-memory", "vcpus", "price-per-gpu"] = parameter(
        "price", "price, spot, name, gpu-memory, vcpus or price-per-gpu"
    )
    all: bool = parameter(False, "every row")


@dataclass(frozen=True, kw_only=True)
class InstancesListed(Report):
    """Instance types in a region. An unknown price is None, and a question mark in the table."""

    SCHEMA = 1
    rows: tuple[Row, ...]
    limit: int | None

    def document(self) -> dict[str, Any]:
        sources = price_sources()
        return {
            "schema": self.SCHEMA,
            "region": self.rows[0].region if self.rows else None,
            "count": len(self.rows),
            "instances": [_object(row) for row in self.rows],
            "sources": [
                {"key": key, "name": sources[key].name, "url": sources[key].url, "as_of": _iso(sources[key].as_of)}
                for key in self._cited()
            ],
        }

    def text(self) -> Iterator[str]:
        page = self.rows[: self.limit]
        yield from console_table.table(_HEAD, [_cells(row) for row in page], right=_HEAD[2:], drop=_DROPPED)
        rest = " --all shows the rest." if len(page) < len(self.rows) else ""
        yield f"Shown {len(page)} of {len(self.rows)}.{rest}"
        if self.rows:
            sources = price_sources()
            read = "; ".join(f"{key} of {_iso(sources[key].as_of) or 'no date'}" for key in self._cited())
            yield f"Prices: {self.rows[0].region}, Linux; ? is not known. {read}"

    def _cited(self) -> list[str]:
        """Return the sources of the prices, each once."""
        return [key for key in dict.fromkeys(key for row in self.rows for key in row.sources) if key in price_sources()]


@command()
def catalog(parameters: CatalogParameters) -> InstancesListed:
    """List the GPU instance types asked for. Raises BadFlag and UnknownGpu."""
    region, priced = parameters.region, table.priced_regions()
    if region not in priced:
        raise BadFlag(
            f"no prices of region {region!r} are known\n    expected: one of {', '.join(priced)}\n"
            f"    fix: ./inv catalog.refresh --region {region or 'REGION'} reads those of another"
        )
    rows = table.choose(
        parameters.gpus,
        parameters.min_memory,
        parameters.gpu or None,
        region,
        parameters.max_price or None,
        parameters.sort,
    )
    return InstancesListed(rows=rows, limit=None if parameters.all else _LIMIT)


def _cells(row: Row) -> tuple[str, ...]:
    instance = row.instance
    count = f"{instance.gpu_count} x " if instance.gpu_fraction == 1 else f"{instance.gpu_fraction:g} x "
    save = f"{1 - row.spot / row.on_demand:.0%}" if row.spot and row.on_demand else "?"
    return (
        instance.name,
        f"{count}{instance.gpu}",
        f"{instance.gpu_memory_mib / 1024:.1f}",
        str(instance.vcpus),
        f"{instance.memory_mib / 1024:g}",
        f"{instance.nvme_total_gb}" if instance.nvme_count else "-",
        _usd(row.on_demand),
        _usd(row.spot),
        save,
        "?" if row.interruption_band is None else _BANDS[row.interruption_band],
        str(instance.max_pods),
    )


def _object(row: Row) -> dict[str, Any]:
    instance = row.instance
    return {
        "instance": instance.name,
        "gpu": instance.gpu,
        "gpus": instance.gpu_count,
        "gpu_fraction": instance.gpu_fraction,
        "gpu_memory_mib": instance.gpu_memory_mib,
        "vcpus": instance.vcpus,
        "memory_mib": instance.memory_mib,
        "nvme_gb": instance.nvme_total_gb,
        "max_pods": instance.max_pods,
        "on_demand": row.on_demand,
        "spot": row.spot,
        "interruption_band": row.interruption_band,
        "on_demand_per_gpu": row.on_demand_per_gpu,
        "sources": list(row.sources),
    }


def _usd(value: float | None) -> str:
    return "?" if value is None else f"{value:.4g}" if value >= 100 else f"{value:.3f}"


def _iso(day: date | None) -> str | None:
    return day.isoformat() if day else None


@dataclass(frozen=True, kw_only=True)
class RefreshParameters(Parameters):
    """Parameters of `catalog.refresh`."""

    region: str = parameter("", "price this region only; by default every region that has prices")
    dry_run: bool = parameter(False, "ask AWS and report, write nothing")


@dataclass(frozen=True, kw_only=True)
class FactsRefreshed(Report):
    """Changes of the facts, source by source. Exit code 1 where a source could not be read."""

    SCHEMA = 1
    dry_run: bool
    read: dict[str, Any]

    @property
    def exit_code(self) -> int:
        return 1 if any(source["failed"] for source in self.read["sources"]) else 0

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, **self.read}

    def text(self) -> Iterator[str]:
        for source in self.read["sources"]:
            head = f"{source['source']:12} {source['file']}"
            if source["failed"]:
                yield f"{head}: left as it is: {source['failed']}"
                continue
            if source["source"] == "faults":
                yield f"{head}: {len(source['noticed'])} things to look at"
                yield from (f"{'':12} {line}" for line in source["noticed"])
                continue
            yield f"{head}: {len(source['changed'])} rows {'would change' if self.dry_run else 'changed'}"
            yield from (f"{'':12} kept: {field}" for field in source["kept"])


@command()
def refresh(parameters: RefreshParameters) -> FactsRefreshed:
    """Read AWS's facts with the credentials of the environment, write what changed, and ask GitHub of known faults."""
    from paddock.catalog.refresh.aws import refresh_main

    read = refresh_main(region=parameters.region or None, dry_run=parameters.dry_run)
    return FactsRefreshed(dry_run=parameters.dry_run, read=read)

"""The table of GPU instances: what there is, what it costs, and where that was read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from paddock.catalog.gpus import gpu as gpu_of
from paddock.catalog.instances import InstanceType, UnknownInstanceType, gpu_instances, instances, price_sources
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

Sort = Literal["price", "spot", "name", "gpu-memory", "vcpus", "price-per-gpu"]
SORTS: tuple[Sort, ...] = ("price", "spot", "name", "gpu-memory", "vcpus", "price-per-gpu")
LIMIT = 25


class BadQuestion(PaddockError):
    """A question to the catalogue that it cannot be asked."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One instance type in one region. Prices are USD per hour, None where nobody has read one."""

    instance: InstanceType
    region: str
    on_demand: float | None
    spot: float | None
    interruption_band: int | None
    sources: tuple[str, ...]

    @property
    def on_demand_per_gpu(self) -> float | None:
        """USD per hour of a whole GPU: a fraction of one is charged as if it were whole."""
        whole = self.instance.gpu_count * self.instance.gpu_fraction
        return None if self.on_demand is None else self.on_demand / whole


def choose(
    gpus: int = 1,
    min_memory_gib: float = 0,
    gpu: str | None = None,
    region: str = "us-east-1",
    max_price: float | None = None,
    sort: Sort = "price",
) -> tuple[Row, ...]:
    """GPU instances with at least `gpus` GPUs of at least `min_memory_gib` GiB each.

    A GPU of 24 GB nominal reports 22.4 GiB; asking for 24 finds it: 8 % less than asked for is taken for the same.
    `max_price` is USD per hour on demand; a type without a price stays in, marked as unknown. Unknown prices sort last.
    """
    if gpu is not None:
        gpu_of(gpu)
    if sort not in SORTS:
        raise BadQuestion(f"cannot sort by {sort!r}\n    expected: one of {', '.join(SORTS)}")
    matching = []
    for instance in gpu_instances(gpu, gpus):
        price = instance.price(region)
        large_enough = instance.gpu_memory_mib >= min_memory_gib * 1024 * 0.92
        cheap_enough = max_price is None or price.on_demand is None or price.on_demand <= max_price
        if large_enough and cheap_enough:
            sources = tuple(key for key in (price.on_demand_source, price.spot_source) if key)
            matching.append(Row(instance, region, price.on_demand, price.spot, price.interruption_band, sources))
    return tuple(sorted(matching, key=lambda row: _key(row, sort)))


def _key(row: Row, sort: Sort) -> tuple[bool, float, str]:
    values: dict[Sort, float | None] = {
        "price": row.on_demand,
        "spot": row.spot,
        "name": 0.0,
        "gpu-memory": float(row.instance.gpu_memory_mib),
        "vcpus": float(row.instance.vcpus),
        "price-per-gpu": row.on_demand_per_gpu,
    }
    value = values[sort]
    return (value is None, value or 0.0, row.instance.name)


def table(rows: Sequence[Row], limit: int | None = LIMIT) -> str:
    """The rows as text, at most `limit` of them, with where and when the prices were read."""
    page = rows[:limit]
    head = ("Instance", "GPU", "GiB each", "vCPU", "GiB", "NVMe GB", "USD/h", "spot", "save", "interrupted", "pods")
    body = [_cells(row) for row in page]
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    lines = [_line(head, widths), *(_line(cells, widths) for cells in body)]
    lines.append(f"Shown {len(page)} of {len(rows)}." + (" --all shows the rest." if len(page) < len(rows) else ""))
    if rows:
        lines.append(f"Prices: {rows[0].region}, Linux; ? is not known. {_read(rows)}")
    return "\n".join(lines) + "\n"


def document(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows as JSON-ready data; unknown prices are null."""
    sources = price_sources()
    cited = dict.fromkeys(key for row in rows for key in row.sources)
    return {
        "region": rows[0].region if rows else None,
        "count": len(rows),
        "instances": [_object(row) for row in rows],
        "sources": [
            {"key": key, "name": sources[key].name, "url": sources[key].url, "as_of": _iso(sources[key].as_of)}
            for key in cited
            if key in sources
        ],
    }


def render_json(rows: Sequence[Row]) -> str:
    """`document` as text."""
    return json.dumps(document(rows), indent=2) + "\n"


def priced_regions() -> tuple[str, ...]:
    """Regions of which the catalogue has prices."""
    return tuple(sorted({region for instance in instances().values() for region in instance.prices}))


def sizes(name: str) -> tuple[InstanceType, ...]:
    """The sizes of an instance type's family with as many GPUs of its kind, smallest first.

    Raises UnknownInstanceType with the nearest names.
    """
    if name not in instances():
        raise UnknownInstanceType(name, instances())
    named = instances()[name]
    same = [
        other
        for other in instances().values()
        if (other.family, other.gpu, other.gpu_count, other.gpu_fraction)
        == (named.family, named.gpu, named.gpu_count, named.gpu_fraction)
    ]
    return tuple(sorted(same, key=lambda other: (other.vcpus, other.memory_mib)))


_BANDS = ("< 5 %", "5-10 %", "10-15 %", "15-20 %", "> 20 %")


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


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Text to the left, numbers to the right."""
    padded = (
        cell.ljust(width) if column < 2 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def _usd(value: float | None) -> str:
    return "?" if value is None else f"{value:.4g}" if value >= 100 else f"{value:.3f}"


def _read(rows: Sequence[Row]) -> str:
    sources = price_sources()
    cited = dict.fromkeys(key for row in rows for key in row.sources if key in sources)
    return "; ".join(f"{key} of {_iso(sources[key].as_of) or 'no date'}" for key in cited)


def _iso(day: date | None) -> str | None:
    return day.isoformat() if day else None

"""Merge of AWS answers into the catalogue's rows: pure functions from rows and an answer to an `Update`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from paddock.catalog import _data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

QUERIES: dict[str, Any] = json.loads(Path(__file__).with_name("queries.json").read_bytes())
"""Questions to AWS, and what its answers are called here."""


@dataclass(frozen=True, slots=True)
class Update:
    """New rows, what changed in them (``g5.xlarge us-east-1 spot 0.5 -> 0.6``) and what the answer did not hold."""

    rows: list[_data.Row]
    changed: tuple[str, ...]
    kept: tuple[str, ...]


def hardware_rows(rows: Sequence[_data.Row], described: Iterable[Mapping[str, Any]]) -> Update:
    """Merge ``DescribeInstanceTypes`` entries into the catalogue's types; types it does not hold are not added."""
    answers = {entry["InstanceType"]: entry for entry in described}
    return _merge(rows, lambda row: row["name"], {name: _hardware(entry) for name, entry in answers.items()})


def on_demand_rows(rows: Sequence[_data.Row], prices: Mapping[str, float], region: str) -> Update:
    """Merge on-demand prices (USD per hour by type) of one region."""
    return _merge_prices(rows, prices, region, "on_demand", "ec2-pricing")


def spot_rows(rows: Sequence[_data.Row], prices: Mapping[str, float], region: str) -> Update:
    """Merge Spot prices (USD per hour by type) of one region."""
    return _merge_prices(rows, prices, region, "spot", "ec2")


def eks_version_rows(rows: Sequence[_data.Row], versions: Iterable[Mapping[str, Any]]) -> Update:
    """Merge ``DescribeClusterVersions`` entries; new versions are added, versions no longer listed stay."""
    answers: dict[str, _data.Row] = {
        entry["clusterVersion"]: {
            "released": _utc_day(entry["releaseDate"]),
            "end_of_standard_support": _utc_day(entry["endOfStandardSupportDate"]),
            "end_of_extended_support": _utc_day(entry["endOfExtendedSupportDate"]),
        }
        for entry in versions
    }
    held = {row["version"] for row in rows}
    added: list[_data.Row] = [{"version": name, **answers[name]} for name in answers if name not in held]
    update = _merge(rows, lambda row: row["version"], answers)
    return Update(
        rows=sorted([*update.rows, *added], key=lambda row: _data.version(row["version"])),
        changed=(*update.changed, *(f"{row['version']} added" for row in added)),
        kept=update.kept,
    )


_ADDON_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)-eksbuild\.(\d+)")


def addon_versions(addons: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """Newest version by (Kubernetes minor, add-on), from ``DescribeAddonVersions`` entries.

    Builds are compared as numbers: eksbuild.11 is newer than eksbuild.3.
    """
    newest: dict[tuple[str, str], tuple[tuple[int, ...], str]] = {}
    for addon in addons:
        for offered in addon["addonVersions"]:
            if not (match := _ADDON_VERSION.fullmatch(offered["addonVersion"])):
                continue
            version = (tuple(map(int, match.groups())), offered["addonVersion"])
            for compatibility in offered["compatibilities"]:
                key = (compatibility["clusterVersion"], addon["addonName"])
                newest[key] = max(newest.get(key, version), version)
    return {key: text for key, (_, text) in newest.items()}


def addon_rows(rows: Sequence[_data.Row], newest: Mapping[tuple[str, str], str]) -> Update:
    """Merge versions by (Kubernetes minor, add-on).

    A minor after those in the rows is added where every add-on has a version for it; one before them stays out.
    """
    addons = sorted({row["addon"] for row in rows})
    last = max(_data.version(row["kubernetes"]) for row in rows)
    later = sorted({minor for minor, _ in newest if _data.version(minor) > last}, key=_data.version)
    added: list[_data.Row] = [
        {"kubernetes": minor, "addon": addon, "version": newest[minor, addon], "source": "eks"}
        for minor in later
        if all((minor, addon) in newest for addon in addons)
        for addon in addons
    ]
    answers: dict[str, _data.Row] = {
        f"{minor} {addon}": {"version": version} for (minor, addon), version in newest.items()
    }
    update = _merge(rows, _addon, answers)
    merged = [row | {"source": "eks"} if _addon(row) in answers else row for row in update.rows]
    return Update(
        [*merged, *added],
        (*update.changed, *(f"{_addon(row)} added" for row in added)),
        update.kept,
    )


def _addon(row: _data.Row) -> str:
    return f"{row['kubernetes']} {row['addon']}"


def quota_rows(rows: Sequence[_data.Row], defaults: Mapping[str, float]) -> Update:
    """Merge default values by quota code."""
    return _merge(rows, lambda row: row["code"], {code: {"default": value} for code, value in defaults.items()})


def ami_rows(rows: Sequence[_data.Row], recommended: Mapping[str, str]) -> Update:
    """Add the AL2023 release AWS recommends for each Kubernetes minor; SSM does not say what is inside it."""
    present = {(row["kubernetes"], row["release"]) for row in rows if row["os"] == "al2023"}
    added = []
    for kubernetes, release in recommended.items():
        if (kubernetes, release) in present:
            continue
        built = release.split("-")[1]
        added.append(
            {
                "os": "al2023",
                "kubernetes": kubernetes,
                "release": release,
                "tag": f"v{built}",
                "date": datetime.strptime(built, "%Y%m%d").replace(tzinfo=UTC).date().isoformat(),
                **dict.fromkeys(("driver", "kernel", "container_toolkit", "containerd")),
            }
        )
    return Update(
        rows=sorted([*rows, *added], key=_newest_first),
        changed=tuple(f"al2023 {row['kubernetes']} {row['release']} added" for row in added),
        kept=(),
    )


def _offers(products: Iterable[str]) -> Iterator[tuple[dict[str, str], Mapping[str, Any], float]]:
    """Yield the attributes, the dimension and the price of every offer on demand in the JSON texts of ``GetProducts``.

    A zero price is a placeholder and is left out.
    """
    for product in map(json.loads, products):
        for term in product["terms"].get("OnDemand", {}).values():
            for dimension in term["priceDimensions"].values():
                if (usd := float(dimension["pricePerUnit"].get("USD", 0))) > 0:
                    yield product["product"]["attributes"], dimension, usd


def on_demand_prices(products: Iterable[str]) -> dict[str, float]:
    """USD per hour by type, from the JSON texts of ``GetProducts``."""
    offers = _offers(products)
    return {attributes["instanceType"]: usd for attributes, dimension, usd in offers if dimension["unit"] == "Hrs"}


def fixed_prices(products: Iterable[str]) -> dict[str, float]:
    """Prices by our keys, from the JSON texts of ``GetProducts``. AWS lists throughput by GiB/s, we by MiB/s."""
    prices: dict[str, float] = {}
    keys = QUERIES["fixed_keys"]
    for attributes, dimension, usd in _offers(products):
        usage = attributes.get("usagetype", "")
        key = keys.get(usage) or keys.get(usage.partition("-")[2])
        if key and dimension.get("beginRange", "0") == "0":
            by_gib = dimension["unit"].lower().startswith("gibps")
            prices[key] = round(usd / 1024 if by_gib else usd, 6)
    return prices


def fixed_rows(rows: Sequence[_data.Row], prices: Mapping[str, float], region: str, today: str) -> Update:
    """Merge prices of one region by key. A region that had no price of a key gets a row."""
    held = {row["key"]: row for row in rows if row["region"] == region}
    updated, changed = list(rows), []
    for key, value in prices.items():
        template = held.get(key) or next(row for row in rows if row["key"] == key)
        new = template | {"region": region, "value": value, "source": "ec2-pricing", "as_of": today}
        if key in held:
            updated[updated.index(held[key])] = new
        else:
            updated.append(new)
        if key not in held or held[key]["value"] != value:
            changed.append(f"{key} {region} {held[key]['value'] if key in held else 'no price'} -> {value}")
    kept = tuple(f"{key} {region}" for key in held if key not in prices)
    return Update(sorted(updated, key=lambda row: (row["key"], row["region"])), tuple(changed), kept)


def spot_prices(history: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """USD per hour by type: the median over zones of each zone's latest entry of ``DescribeSpotPriceHistory``."""
    latest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for entry in history:
        key = (entry["InstanceType"], entry["AvailabilityZone"])
        if key not in latest or entry["Timestamp"] > latest[key]["Timestamp"]:
            latest[key] = entry
    zones: dict[str, list[float]] = {}
    for (name, _), entry in latest.items():
        zones.setdefault(name, []).append(float(entry["SpotPrice"]))
    return {name: round(median(prices), 5) for name, prices in zones.items()}


def _hardware(entry: Mapping[str, Any]) -> _data.Row:
    network = entry["NetworkInfo"]
    cards = {card["NetworkCardIndex"]: card for card in network["NetworkCards"]}
    disks = entry.get("InstanceStorageInfo", {}).get("Disks", [])
    gpus = entry.get("GpuInfo", {}).get("Gpus", [])
    return {
        "arch": "arm64" if "arm64" in entry["ProcessorInfo"]["SupportedArchitectures"] else "x86_64",
        "vcpus": entry["VCpuInfo"]["DefaultVCpus"],
        "memory_mib": entry["MemoryInfo"]["SizeInMiB"],
        # A fraction of a GPU has Count 0; LogicalGpuCount is what a pod sees.
        "gpu_count": sum(gpu.get("LogicalGpuCount", gpu["Count"]) for gpu in gpus),
        "gpu_fraction": gpus[0].get("GpuPartitionSize", 1.0) if gpus else 1.0,
        "nvme_count": sum(disk["Count"] for disk in disks),
        "nvme_gb": disks[0]["SizeInGB"] if disks else 0,
        "enis": cards[network.get("DefaultNetworkCardIndex", 0)]["MaximumNetworkInterfaces"],
        "ipv4_per_eni": network["Ipv4AddressesPerInterface"],
        "efa": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "bare_metal": entry["BareMetal"],
        "api_gpu_count": sum(gpu["Count"] for gpu in gpus),
    }


def _merge(rows: Sequence[_data.Row], name: Callable[[_data.Row], str], answers: Mapping[str, _data.Row]) -> Update:
    new, changed, unchanged = [], [], []
    for row in rows:
        answer = answers.get(name(row))
        if answer is None:
            unchanged.append(name(row))
            new.append(row)
            continue
        changed += [f"{name(row)} {key} {row[key]} -> {value}" for key, value in answer.items() if row[key] != value]
        new.append(row | answer)
    return Update(new, tuple(changed), tuple(unchanged))


def _merge_prices(
    rows: Sequence[_data.Row], prices: Mapping[str, float], region: str, column: str, source: str
) -> Update:
    """Set `column` and its ``_source`` in the rows of one region; a row is made where the region is new."""
    types = list(dict.fromkeys(row["type"] for row in rows))
    held = {row["type"] for row in rows if row["region"] == region}
    table = [*rows, *(_unpriced(name, region) for name in types if name not in held and name in prices)]
    new, changed, unchanged = [], [], []
    for row in table:
        price = prices.get(row["type"]) if row["region"] == region else None
        if price is None:
            if row["region"] == region and row[column] is not None:
                unchanged.append(f"{row['type']} {region} {column}")
            new.append(row)
            continue
        if row[column] != price:
            changed.append(f"{row['type']} {region} {column} {row[column]} -> {price}")
        new.append(row | {column: price, f"{column}_source": source})
    order = {name: index for index, name in enumerate(types)}
    return Update(sorted(new, key=lambda row: (order[row["type"]], row["region"])), tuple(changed), tuple(unchanged))


def _unpriced(name: str, region: str) -> _data.Row:
    columns = ("on_demand", "on_demand_source", "spot", "spot_source", "interruption_band")
    return {"type": name, "region": region, **dict.fromkeys(columns)}


def _newest_first(row: _data.Row) -> tuple[str, int, list[int]]:
    numbers = row["release"].split("-")[-1]
    return row["os"], -_data.version(row["kubernetes"])[1], [-number for number in _data.version(numbers)]


def _utc_day(moment: datetime) -> str:
    return moment.astimezone(UTC).date().isoformat()

"""Ask AWS for the facts it can answer and rewrite the data files.

A source that fails leaves its rows as they were and says why; a value the answer lacks stays as it was and is named.
Columns that AWS does not know (which GPU, interruption band, driver of an image) are never touched. A running process
keeps the facts it has read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from paddock import clock
from paddock.aws.client import Aws, Clients
from paddock.aws.errors import AwsError, NotSignedIn
from paddock.catalog import _data, faults
from paddock.catalog.refresh import github, merge
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

A = TypeVar("A")
PRICING_REGION = "us-east-1"  # the price list is served from three regions only, for all of them


class RefreshError(PaddockError):
    """A source could not be read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """Result of one source. `failed` is the reason, None when it was read; `noticed` is for a person to look at."""

    source: str
    file: str
    changed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    failed: str | None = None
    noticed: tuple[str, ...] = ()


def refresh(
    clients: Clients | None,
    today: date,
    regions: Sequence[str],
    which: Iterable[str] | None = None,
    folder: Path = _data.DATA,
    write: bool = True,
) -> tuple[RefreshReport, ...]:
    """Refresh the named sources (all when `which` is None; see `SOURCES`) from the first region or from each.

    `clients` takes the place of boto3's own; `today` is the day the new values are stamped with.
    Prices are read in `regions`; hardware is the union of what they offer. Without `write` the files stay as they are.
    Raises ValueError where `regions` is empty, or `which` holds a name that is not a source.
    """
    chosen = list(SOURCES if which is None else which)
    unknown = [name for name in chosen if name not in SOURCES]
    if unknown or not regions:
        raise ValueError(
            f"cannot refresh {unknown or 'no region'}: sources are {', '.join(SOURCES)}, regions at least one"
        )
    documents: dict[str, _data.Document] = {}
    reports = []
    for name in chosen:
        fact = SOURCES[name]
        content = documents.get(fact.file) or _data.document(fact.file, folder)
        try:
            update = _answered(fact, Question(Aws(regions[0], clients), content["rows"], today, regions))
        except RefreshError as error:
            reports.append(RefreshReport(name, fact.file, failed=str(error)))
            continue
        url = f"https://docs.aws.amazon.com/{fact.manual}/"
        cited = fact.cites.format(regions=", ".join(regions))
        source = {"key": fact.key, "name": cited, "url": url, "as_of": today.isoformat()}
        documents[fact.file] = _stamped(content, update.rows, source, _date_of(name, content, today, regions))
        reports.append(RefreshReport(name, fact.file, update.changed, update.kept))
    if write:
        for file, content in documents.items():
            _data.write(file, content, folder)
    return tuple(reports)


def refresh_main(path: Path | None = None, region: str | None = None, dry_run: bool = False) -> dict[str, Any]:
    """Refresh every source with the credentials of the environment, and ask GitHub about known faults.

    Without `path` it is the package's own data folder, without `region` every region of the price file. Return the
    reports as JSON: ``{"dry_run": bool, "sources": [{"source", "file", "changed", "kept", "failed", "noticed"}]}``.
    Raises RefreshError where boto3 is not installed, or has no credentials to ask with.
    """
    folder = path or _data.DATA
    priced = sorted({row["region"] for row in _data.document("instance_prices.json", folder)["rows"]})
    try:
        Aws(PRICING_REGION).ask("sts", "get_caller_identity")
    except NotSignedIn as error:
        raise RefreshError(str(error)) from None
    except AwsError:  # each source says what it meets
        pass
    reports = refresh(
        None,
        clock.today(),
        [region] if region else priced,
        folder=folder,
        write=not dry_run,
    )
    return {"dry_run": dry_run, "sources": [asdict(report) for report in (*reports, _known_faults(folder))]}


def _known_faults(folder: Path) -> RefreshReport:
    """Ask GitHub about the rows of known faults, which a person writes: nothing changes them here."""
    try:
        return RefreshReport("faults", faults.FILE, noticed=github.noticed(_data.document(faults.FILE, folder)))
    except github.NotAnswered as error:
        return RefreshReport("faults", faults.FILE, failed=str(error))


class Question(NamedTuple):
    """One source's question: the rows that are held, and the regions to ask in, the first where one is enough."""

    aws: Aws
    rows: Sequence[_data.Row]
    today: date
    regions: Sequence[str]


def _hardware(asked: Question) -> merge.Update:
    described = [
        entry
        for region in asked.regions
        for entry in asked.aws.pages("ec2", "describe_instance_types", "InstanceTypes", region=region)
    ]
    return merge.hardware_rows(asked.rows, _some(described))


def _on_demand(asked: Question) -> merge.Update:
    def prices(region: str) -> Mapping[str, float]:
        filters = {"regionCode": region, **merge.QUERIES["price_filters"]}
        products = [_products(asked.aws, "AmazonEC2", filters | product) for product in merge.QUERIES["price_products"]]
        return merge.on_demand_prices(chain.from_iterable(products))

    return _each_region(asked, prices, merge.on_demand_rows)


def _fixed(asked: Question) -> merge.Update:
    def prices(region: str) -> Mapping[str, float]:
        products = [
            _products(asked.aws, name, {"regionCode": region, **own}) for name, own in merge.QUERIES["fixed_products"]
        ]
        return merge.fixed_prices(chain.from_iterable(products))

    return _each_region(asked, prices, partial(merge.fixed_rows, today=asked.today.isoformat()))


def _products(aws: Aws, service: str, filters: Mapping[str, str]) -> Iterator[Any]:
    """Yield the products that match every filter, each as JSON text."""
    matched = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in filters.items()]
    query = {"ServiceCode": service, "FormatVersion": "aws_v1", "Filters": matched}
    return aws.pages("pricing", "get_products", "PriceList", region=PRICING_REGION, **query)


def _spot(asked: Question) -> merge.Update:
    def prices(region: str) -> Mapping[str, float]:
        # No InstanceTypes: one retired type in the list fails the whole request. From now on is the price of now.
        query = {"ProductDescriptions": ["Linux/UNIX"], "StartTime": datetime.now(UTC)}
        history = asked.aws.pages("ec2", "describe_spot_price_history", "SpotPriceHistory", region=region, **query)
        return merge.spot_prices(history)

    return _each_region(asked, prices, merge.spot_rows)


def _eks_versions(asked: Question) -> merge.Update:
    versions = list(asked.aws.pages("eks", "describe_cluster_versions", "clusterVersions"))
    return merge.eks_version_rows(asked.rows, _some(versions))


def _addons(asked: Question) -> merge.Update:
    names = sorted({row["addon"] for row in asked.rows})
    answers = [asked.aws.pages("eks", "describe_addon_versions", "addons", addonName=name) for name in names]
    return merge.addon_rows(asked.rows, _some(merge.addon_versions(chain.from_iterable(answers))))


def _quotas(asked: Question) -> merge.Update:
    defaults = {}
    for row in asked.rows:
        query = {"ServiceCode": row["service"], "QuotaCode": row["code"]}
        answer = _known(
            asked.aws, "service-quotas", "get_aws_default_service_quota", "NoSuchResourceException", **query
        )
        if answer:  # else it is not in this region: the row stays and is reported
            defaults[row["code"]] = answer["Quota"]["Value"]
    return merge.quota_rows(asked.rows, _some(defaults))


def _amis(asked: Question) -> merge.Update:
    held = list(dict.fromkeys(row["kubernetes"] for row in asked.rows))
    recommended = {}
    for minor in [*held, _next_minor(held)]:
        name = f"/aws/service/eks/optimized-ami/{minor}/amazon-linux-2023/x86_64/nvidia/recommended/release_version"
        if answer := _known(asked.aws, "ssm", "get_parameter", "ParameterNotFound", Name=name):
            recommended[minor] = answer["Parameter"]["Value"]
    update = merge.ami_rows(asked.rows, _some(recommended))
    missing = tuple(f"{minor} recommended release" for minor in held if minor not in recommended)
    return merge.Update(update.rows, update.changed, missing)


class Fact(NamedTuple):
    """A source of facts: the file they go to, its question, and how messages and the file name where they are from."""

    file: str
    read: Callable[[Question], merge.Update]
    subject: str
    key: str
    cites: str
    manual: str


_READERS = {
    "hardware": _hardware,
    "on-demand": _on_demand,
    "spot": _spot,
    "fixed": _fixed,
    "eks-versions": _eks_versions,
    "eks-addons": _addons,
    "quotas": _quotas,
    "amis": _amis,
}
SOURCES = {name: Fact(read=read, **merge.QUERIES["sources"][name]) for name, read in _READERS.items()}


def _known(aws: Aws, service: str, operation: str, absent: str, **parameters: str) -> dict[str, Any] | None:
    """Return an answer; None where AWS refuses with the code `absent`."""
    try:
        return aws.ask(service, operation, **parameters)
    except AwsError as error:
        if error.code == absent:
            return None
        raise


def _answered(fact: Fact, asked: Question) -> merge.Update:
    """Ask. Raises RefreshError for a refusal, and for an answer of another form."""
    try:
        return fact.read(asked)
    except AwsError as error:
        lines = [line.strip() for line in str(error).splitlines() if "expected: " not in line]
        raise RefreshError(f"{fact.subject}: {'; '.join(lines)}") from error
    except (KeyError, ValueError, IndexError) as error:
        raise RefreshError(f"{fact.subject}: the answer has a form this version does not read: {error!r}") from error


def _some(answer: A) -> A:
    if not answer:
        raise RefreshError("AWS answered with nothing: check the region")
    return answer


def _each_region(
    asked: Question,
    prices: Callable[[str], Mapping[str, float]],
    merged: Callable[[Sequence[_data.Row], Mapping[str, float], str], merge.Update],
) -> merge.Update:
    answers = {region: _some(prices(region)) for region in asked.regions}
    update = merge.Update(list(asked.rows), (), ())
    for region, answer in answers.items():
        step = merged(update.rows, answer, region)
        update = merge.Update(step.rows, update.changed + step.changed, update.kept + step.kept)
    return update


def _next_minor(minors: Sequence[str]) -> str:
    major, minor = max(_data.version(name) for name in minors)
    return f"{major}.{minor + 1}"


def _date_of(source: str, content: _data.Document, today: date, regions: Sequence[str]) -> str:
    """The date the file may carry now: a part of its prices refreshed does not make all of them new."""
    priced = {row["region"] for row in content["rows"] if row.get("region", "*") != "*"}
    dated: str = content["as_of"]
    return dated if source == "spot" or not priced <= set(regions) else today.isoformat()


def _stamped(content: _data.Document, rows: list[_data.Row], source: _data.Row, as_of: str) -> _data.Document:
    sources = [*(cited for cited in content["sources"] if cited["key"] != source["key"]), source]
    return content | {"as_of": as_of, "sources": sources, "rows": rows}

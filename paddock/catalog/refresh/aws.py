"""Ask AWS for the facts it can answer and rewrite the data files.

A source that fails leaves its rows as they were and says why; a value the answer lacks stays as it was and is named.
Columns that AWS does not know (which GPU, interruption band, driver of an image) are never touched. A running process
keeps the facts it has read. boto3 is imported only by `refresh_main`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from paddock import clock
from paddock.catalog import _data
from paddock.catalog.refresh import merge as _answers
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    Clients = Callable[[str, str], Any]  # (service, region) -> boto3 client

PRICING_REGION = "us-east-1"  # the price list is served from three regions only, for all of them

# The filters Karpenter asks the price list with: shared Linux machines, nothing installed, bought by the hour.
_PRICE_FILTERS = {
    "serviceCode": "AmazonEC2",
    "preInstalledSw": "NA",
    "operatingSystem": "Linux",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
# Bare metal has its own product family, and AWS lists it under dedicated tenancy.
_PRICE_PRODUCTS = (
    {"productFamily": "Compute Instance", "tenancy": "Shared"},
    {"productFamily": "Compute Instance (bare metal)", "tenancy": "Dedicated"},
)


# Control plane, NAT gateways, interface endpoints, gp3 volumes.
_FIXED_PRODUCTS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("AmazonEKS", {}),
    ("AmazonEC2", {"productFamily": "NAT Gateway"}),
    ("AmazonEC2", {"volumeApiName": "gp3"}),
    ("AmazonVPC", {"productFamily": "VpcEndpoint"}),
)


_SIGN_IN = "run `aws sso login`, or set AWS_PROFILE to a profile of your AWS configuration"


class RefreshError(PaddockError):
    """A source could not be read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Report:
    """Result of one source. `failed` is the reason, None when it was read."""

    source: str
    file: str
    changed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    failed: str | None = None


def refresh(
    clients: Clients,
    today: date,
    regions: Sequence[str],
    which: Iterable[str] | None = None,
    folder: Path = _data.DATA,
    write: bool = True,
) -> tuple[Report, ...]:
    """Refresh the named sources (all when `which` is None; see `SOURCES`) from the first region or from each.

    `clients` gives a boto3 client for a service and a region; `today` is the day the new values are stamped with.
    Prices are read in `regions`; hardware is the union of what they offer. Without `write` the files stay as they are.
    Raises ValueError where `regions` is empty, or `which` holds a name that is no source.
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
        file, read = SOURCES[name]
        content = documents.get(file) or _data.document(file, folder)
        try:
            update, source = read(clients, content["rows"], today, regions)
        except RefreshError as error:
            reports.append(Report(name, file, failed=str(error)))
            continue
        documents[file] = _stamped(content, update.rows, source, _date_of(name, content, today, regions))
        reports.append(Report(name, file, update.changed, update.kept))
    if write:
        for file, content in documents.items():
            _data.write(file, content, folder)
    return tuple(reports)


def refresh_main(path: Path | None = None, region: str | None = None, dry_run: bool = False) -> dict[str, Any]:
    """Refresh every source with the credentials of the environment.

    Without `path` it is the package's own data folder, without `region` every region of the price file. Return the
    reports as JSON: ``{"dry_run": bool, "sources": [{"source", "file", "changed", "kept", "failed"}, ...]}``. Raises
    RefreshError where boto3 is not installed, or has no credentials to ask with.
    """
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise RefreshError("boto3 is not installed\n    fix: pip install 'paddock[aws]'") from error
    folder = path or _data.DATA
    priced = sorted({row["region"] for row in _data.document("instance_prices.json", folder)["rows"]})
    try:
        session = boto3.session.Session()
        usable = session.get_credentials() is not None
    except BotoCoreError as error:  # a profile that is not there, or whose source cannot be asked
        raise RefreshError(f"no AWS credentials: {error}\n    fix: {_SIGN_IN}") from None
    if not usable:
        raise RefreshError(f"no AWS credentials\n    fix: {_SIGN_IN}")
    reports = refresh(
        lambda service, where: session.client(service, region_name=where),
        clock.today(),
        [region] if region else priced,
        folder=folder,
        write=not dry_run,
    )
    return {"dry_run": dry_run, "sources": [asdict(report) for report in reports]}


# Fetch: one function a source, (clients, rows, today, regions) -> (update, where it came from).


def _read_hardware(
    clients: Clients, rows: Sequence[_data.Row], today: date, regions: Sequence[str]
) -> tuple[_answers.Update, _data.Row]:
    described: list[Mapping[str, Any]] = []
    with _asking("EC2 DescribeInstanceTypes", "ec2:DescribeInstanceTypes"):
        for region in regions:
            pages = clients("ec2", region).get_paginator("describe_instance_types").paginate()
            described += [entry for page in pages for entry in page["InstanceTypes"]]
        _refuse_nothing(described)
        update = _answers.hardware_rows(rows, described)
    return update, _source("ec2", f"EC2 DescribeInstanceTypes, {', '.join(regions)}", "ec2", today)


def _read_on_demand(
    clients: Clients, rows: Sequence[_data.Row], today: date, regions: Sequence[str]
) -> tuple[_answers.Update, _data.Row]:
    answers = {}
    with _asking("the AWS price list", "pricing:GetProducts"):
        pages = clients("pricing", PRICING_REGION).get_paginator("get_products")
        for region in regions:
            products: list[str] = []
            for product in _PRICE_PRODUCTS:
                filters = {"regionCode": region, **_PRICE_FILTERS, **product}
                answer = pages.paginate(
                    ServiceCode="AmazonEC2",
                    FormatVersion="aws_v1",
                    Filters=[{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in filters.items()],
                )
                products += [text for page in answer for text in page["PriceList"]]
            answers[region] = _answers.on_demand_prices(products)
            _refuse_nothing(answers[region])
    update = _each_region(rows, answers, _answers.on_demand_rows)
    return update, _source("ec2-pricing", "AWS price list, GetProducts", "awsaccountbilling", today)


def _read_fixed(
    clients: Clients, rows: Sequence[_data.Row], today: date, regions: Sequence[str]
) -> tuple[_answers.Update, _data.Row]:
    answers = {}
    with _asking("the AWS price list", "pricing:GetProducts"):
        pages = clients("pricing", PRICING_REGION).get_paginator("get_products")
        for region in regions:
            products: list[str] = []
            for service, filters in _FIXED_PRODUCTS:
                answer = pages.paginate(
                    ServiceCode=service,
                    FormatVersion="aws_v1",
                    Filters=[
                        {"Type": "TERM_MATCH", "Field": key, "Value": value}
                        for key, value in {"regionCode": region, **filters}.items()
                    ],
                )
                products += [text for page in answer for text in page["PriceList"]]
            answers[region] = _answers.fixed_prices(products)
            _refuse_nothing(answers[region])
    update = _each_region(
        rows, answers, lambda held, prices, region: _answers.fixed_rows(held, prices, region, today.isoformat())
    )
    return update, _source("ec2-pricing", "AWS price list, GetProducts", "awsaccountbilling", today)


def _read_spot(
    clients: Clients, rows: Sequence[_data.Row], today: date, regions: Sequence[str]
) -> tuple[_answers.Update, _data.Row]:
    answers = {}
    with _asking("EC2 Spot prices", "ec2:DescribeSpotPriceHistory"):
        for region in regions:
            pages = (
                clients("ec2", region)
                .get_paginator("describe_spot_price_history")
                .paginate(
                    # No InstanceTypes: one retired type in the list fails the whole request.
                    ProductDescriptions=["Linux/UNIX"],
                    StartTime=datetime.now(UTC),  # from now on is the price of now
                )
            )
            answers[region] = _answers.spot_prices(entry for page in pages for entry in page["SpotPriceHistory"])
            _refuse_nothing(answers[region])
    update = _each_region(rows, answers, _answers.spot_rows)
    return update, _source("ec2", "EC2 DescribeSpotPriceHistory, median of the zones", "ec2", today)


def _read_eks_versions(
    clients: Clients, rows: Sequence[_data.Row], today: date, regions: Sequence[str]
) -> tuple[_answers.Update, _data.Row]:
    with _asking("EKS versions", "eks:DescribeClusterVersions"):
        pages = clients("eks", regions[0]).get_paginator("describe_cluster_versions").paginate()
        versions = [entry for page in pages for entry in page["clusterVersions"]]
        _refuse_nothing(versions)
        update = _answers.eks_version_rows(rows, versions)
    return update, _source("eks", "EKS DescribeClusterVersions", "eks", today)


def _read_addons(
    clients: Clients, rows: Sequence[_data.Row], today: date, regions: Sequence[str]
) -> tuple[_answers.Update, _data.Row]:
    addons: list[Mapping[str, Any]] = []
    with _asking("EKS add-ons", "eks:DescribeAddonVersions"):
        pages = clients("eks", regions[0]).get_paginator("describe_addon_versions")
        for name in sorted({row["addon"] for row in rows}):
            addons += [entry for page in pages.paginate(addonName=name) for entry in page["addons"]]
        newest = _answers.addon_versions(addons)
        _refuse_nothing(newest)
        update = _answers.addon_rows(rows, newest)
    return update, _source("eks", "EKS DescribeAddonVersions", "eks", today)


def _read_quotas(
    clients: Clients, rows: Sequence[_data.Row], today: date, regions: Sequence[str]
) -> tuple[_answers.Update, _data.Row]:
    defaults = {}
    with _asking("service quotas", "servicequotas:GetAWSDefaultServiceQuota"):
        client = clients("service-quotas", regions[0])
        for row in rows:
            try:
                answer = client.get_aws_default_service_quota(ServiceCode=row["service"], QuotaCode=row["code"])
            except client.exceptions.NoSuchResourceException:
                continue  # not in this region: the row stays and is reported
            defaults[row["code"]] = answer["Quota"]["Value"]
        _refuse_nothing(defaults)
    return _answers.quota_rows(rows, defaults), _source(
        "service-quotas", "GetAWSDefaultServiceQuota", "servicequotas", today
    )


def _read_amis(
    clients: Clients, rows: Sequence[_data.Row], today: date, regions: Sequence[str]
) -> tuple[_answers.Update, _data.Row]:
    held = list(dict.fromkeys(row["kubernetes"] for row in rows))
    recommended = {}
    with _asking("EKS image releases", "ssm:GetParameter"):
        client = clients("ssm", regions[0])
        for minor in [*held, _next_minor(held)]:
            name = f"/aws/service/eks/optimized-ami/{minor}/amazon-linux-2023/x86_64/nvidia/recommended/release_version"
            try:
                recommended[minor] = client.get_parameter(Name=name)["Parameter"]["Value"]
            except client.exceptions.ParameterNotFound:
                continue
        _refuse_nothing(recommended)
        update = _answers.ami_rows(rows, recommended)
    missing = tuple(f"{minor} recommended release" for minor in held if minor not in recommended)
    source = _source("ssm", "SSM public parameters, recommended release", "eks", today)
    return _answers.Update(update.rows, update.changed, missing), source


SOURCES: Mapping[str, tuple[str, Callable[..., tuple[_answers.Update, _data.Row]]]] = {
    "hardware": ("instances.json", _read_hardware),
    "on-demand": ("instance_prices.json", _read_on_demand),
    "spot": ("instance_prices.json", _read_spot),
    "fixed": ("fixed_prices.json", _read_fixed),
    "eks-versions": ("eks_versions.json", _read_eks_versions),
    "eks-addons": ("eks_addons.json", _read_addons),
    "quotas": ("quotas.json", _read_quotas),
    "amis": ("eks_amis.json", _read_amis),
}


@contextmanager
def _asking(subject: str, permission: str) -> Iterator[None]:
    """The one place where botocore's errors, and answers of another form, become ours."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if "Token" in code:
            hint = "log in again"
        else:
            hint = f"allow {permission}" if "Denied" in code or "Unauthorized" in code else "try again later"
        raise RefreshError(f"{subject}: AWS answered {code}: {error.response['Error']['Message']} ({hint})") from error
    except NoCredentialsError as error:
        raise RefreshError(f"{subject}: no AWS credentials: run `aws sso login` or set AWS_PROFILE") from error
    except BotoCoreError as error:
        raise RefreshError(f"{subject}: cannot reach AWS: {error} (check region and network)") from error
    except (KeyError, ValueError, IndexError) as error:
        raise RefreshError(f"{subject}: the answer has a form this version does not read: {error!r}") from error


def _refuse_nothing(answer: Sequence[Any] | Mapping[Any, Any]) -> None:
    if not answer:
        raise RefreshError("AWS answered with nothing: check the region")


def _each_region(
    rows: Sequence[_data.Row],
    answers: Mapping[str, Mapping[str, float]],
    merge: Callable[[Sequence[_data.Row], Mapping[str, float], str], _answers.Update],
) -> _answers.Update:
    update = _answers.Update(list(rows), (), ())
    for region, prices in answers.items():
        step = merge(update.rows, prices, region)
        update = _answers.Update(step.rows, update.changed + step.changed, update.kept + step.kept)
    return update


def _next_minor(minors: Sequence[str]) -> str:
    major, minor = max(_data.version(name) for name in minors)
    return f"{major}.{minor + 1}"


def _source(key: str, name: str, manual: str, today: date) -> _data.Row:
    url = f"https://docs.aws.amazon.com/{manual}/"
    return {"key": key, "name": name, "url": url, "as_of": today.isoformat()}


def _date_of(source: str, content: _data.Document, today: date, regions: Sequence[str]) -> str:
    """The date the file may carry now: a part of its prices refreshed does not make all of them new."""
    priced = {row["region"] for row in content["rows"] if row.get("region", "*") != "*"}
    dated: str = content["as_of"]
    return dated if source == "spot" or not priced <= set(regions) else today.isoformat()


def _stamped(content: _data.Document, rows: list[_data.Row], source: _data.Row, as_of: str) -> _data.Document:
    sources = [*(cited for cited in content["sources"] if cited["key"] != source["key"]), source]
    return content | {"as_of": as_of, "sources": sources, "rows": rows}

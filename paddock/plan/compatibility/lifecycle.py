"""Ages and ends of support: Kubernetes versions, node images, drivers, the runner, and ARC with GitHub's server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date

from infra import versions
from paddock import catalog
from paddock.catalog import EksAmi, EksVersion, version
from paddock.catalog.cuda_match import Outcome
from paddock.catalog.faults import known_faults
from paddock.catalog.github import RUNNER_GRACE_DAYS, label_support, runner_age
from paddock.fleet import Fleet
from paddock.fleet.model.cluster import KubeconfigCluster, NewCluster
from paddock.fleet.model.pool import MINORS_BEHIND, Ami, Bottlerocket, Custom, EksManaged, minors_behind, minors_for
from paddock.plan.compatibility.verdict import Verdict
from paddock.plan.finding import Edit, Severity, put

SOON_DAYS = 90
"""An end of a driver's support that is nearer than this is worth a warning."""
NOTICE_DAYS = 183
"""Half a year before EKS's standard support ends an upgrade should be planned."""
UPGRADE_DAYS = 61
"""Two months before it ends the upgrade should be done."""
OLD_IMAGE_DAYS = 90
"""A node image older than this has missed several kernels: AWS releases one about every two weeks."""


def images(fleet: Fleet, today: date) -> Iterator[Verdict]:
    """Node images against the Kubernetes version, and their age; one verdict an image."""
    pools: dict[str, list[str]] = {}
    for name, pool in fleet.pools.items():
        ami = fleet.ami(pool)
        if ami is not None:
            pools.setdefault(ami.model_dump_json(), []).append(name)
    for names in pools.values():
        yield from _image(fleet, names, today)


def _image(fleet: Fleet, names: list[str], today: date) -> Iterator[Verdict]:
    subject = f"pools.{names[0]}.ami" if len(names) == 1 else "pools"
    where = "" if len(names) == 1 else f" of pools {', '.join(names)}"
    minor, made_for = fleet.cluster.version, fleet.kubernetes(fleet.pools[names[0]])
    ami = fleet.ami(fleet.pools[names[0]])
    match ami:
        case EksManaged(release=source):
            row = _row("al2023", source, made_for)
        case Custom(custom=source):
            row = None
        case Bottlerocket(bottlerocket=source):
            row = _row("bottlerocket", source.split("-")[0], made_for)
        case _:
            return
    numbers: dict[str, str | int | None] = {"image": source, "image_kubernetes": made_for, "cluster_kubernetes": minor}
    yield _skew(
        ami, names, subject, f"image {source}{where} is for Kubernetes {made_for}, the cluster runs {minor}", numbers
    )
    newest = catalog.latest_ami(made_for)
    built = row.date if row else None
    if built is None and isinstance(ami, EksManaged):
        built = date.fromisoformat(f"{source[-8:-4]}-{source[-4:-2]}-{source[-2:]}")
    if built is None:
        reason = "no source gives its date" if isinstance(ami, Bottlerocket) else "only your AMI pipeline knows"
        yield Verdict("CMP006", subject, "unknown", f"the age of image {source}{where} is not known: {reason}", numbers)
        return
    age = (today - built).days
    newer = newest if newest and newest.date and newest.date > built and isinstance(ami, EksManaged) else None
    edits = _release(names, newer) if newer and age > OLD_IMAGE_DAYS else ()
    yield Verdict(
        "CMP006",
        subject,
        "ok",
        f"image {source}{where} is {age} days old (built {built})",
        numbers | {"built": built.isoformat(), "age_days": age, "limit_days": OLD_IMAGE_DAYS},
        " and ".join(map(str, edits)),
        # The newest image that the catalogue knows can only be as old as the catalogue, which CAT001 reports.
        concern="warning" if edits else None,
        edits=edits,
    )


def _skew(ami: Ami, names: list[str], subject: str, message: str, numbers: Mapping[str, str | int | None]) -> Verdict:
    """Return whether nodes of an image may join the cluster: an upgrade of it passes through older nodes."""
    made_for, minor = str(numbers["image_kubernetes"]), str(numbers["cluster_kubernetes"])
    behind, newest = minors_behind(made_for, minor), catalog.latest_ami(minor)
    if behind == 0:
        return Verdict("CMP005", subject, "ok", message, numbers)
    is_possible = 0 < behind <= MINORS_BEHIND
    if is_possible:
        message += f": right while an upgrade is under way, for a node may be {MINORS_BEHIND} minors older"
        if not isinstance(ami, Custom):
            message += f". EKS makes a node group of {minor} only: a pool that is new or replaced would be refused"
    fix = f"an image for {minor}" + (f": {{release: {newest.release}}}" if newest else "")
    if isinstance(ami, Custom):
        fix = f"once the cluster runs {minor}, " if is_possible else f"an image for {minors_for(minor)}: "
        fix += f"./inv ami.build makes an image for {minor} and ./inv ami.promote pins it"
    if isinstance(ami, Bottlerocket):
        fix = f"leave ami.kubernetes out of {', '.join(names)}, for the variant of {minor}"
    return Verdict(
        "CMP005",
        subject,
        "ok" if is_possible else "impossible",
        message,
        numbers,
        fix,
        concern="warning" if is_possible else None,
        # When older nodes follow is their owner's choice.
        edits=_release(names, newest) if newest and isinstance(ami, EksManaged) and not is_possible else (),
    )


def _release(pools: Iterable[str], ami: EksAmi) -> tuple[Edit, ...]:
    """Return the edits that give pools an EKS image."""
    return tuple(put("pools", name, "ami", value={"release": ami.release}) for name in pools)


def _row(os: str, release: str, minor: str) -> EksAmi | None:
    rows = (row for row in catalog.eks_amis() if row.os == os and row.release == release and row.kubernetes == minor)
    return next(rows, None)


def drivers(of_pools: Mapping[str, str | None], today: date) -> Iterator[Verdict]:
    """Yield the end of NVIDIA's support of each driver branch in use."""
    branches: dict[int, list[str]] = {}
    for pool, driver in of_pools.items():
        branch = catalog.driver_branch(driver) if driver else None
        if branch:
            branches.setdefault(branch.branch, []).append(pool)
    for number, pools in branches.items():
        branch, subject = catalog.driver_branches()[number], f"pools.{pools[0]}" if len(pools) == 1 else "pools"
        end = branch.end_of_support
        numbers: dict[str, str | int | None] = {
            "branch": number,
            "kind": branch.kind,
            "end_of_support": end.isoformat() if end else None,
            "days_left": (end - today).days if end else None,
        }
        if end is None:
            message = f"no source says how long NVIDIA supports driver R{number} ({', '.join(pools)})"
            yield Verdict("CMP004", subject, "unknown", message, numbers)
            continue
        days_left = (end - today).days
        yield Verdict(
            "CMP004",
            subject,
            "ok",
            f"NVIDIA supports driver R{number} until {end}, {_days(days_left)} ({', '.join(pools)})",
            numbers,
            ""
            if days_left >= SOON_DAYS
            else "an image with a newer driver branch, or one from images.ami: {enabled: true}",
            concern="warning" if days_left < SOON_DAYS else None,
        )


def kubernetes(fleet: Fleet, today: date) -> Iterator[Verdict]:
    """Check how long EKS still supports the cluster's Kubernetes, and say what it costs afterwards."""
    if isinstance(fleet.cluster, KubeconfigCluster):
        return  # not necessarily EKS
    minor = fleet.cluster.version
    dates = catalog.eks_versions()[minor]
    state, standard, extended = dates.support_on(today), dates.end_of_standard_support, dates.end_of_extended_support
    end = standard if today < standard else extended
    days_left = (end - today).days if end else None
    numbers: dict[str, str | int | None] = {
        "version": minor,
        "support": state,
        "end_of_standard_support": standard.isoformat(),
        "end_of_extended_support": extended.isoformat() if extended else None,
        "days_left": days_left,
    }
    severity = _support_concern(dates, today)
    fix, edits = _upgrade(fleet, today)
    if today < dates.released:
        message = f"EKS had no Kubernetes {minor} on {today}: the catalogue dates it {dates.released}"
        yield Verdict("CMP007", "cluster.version", "unknown", message, numbers, "./inv catalog.refresh")
        return
    if state == "ended":
        message = f"extended support of Kubernetes {minor} on EKS ended on {end}: EKS upgrades the cluster by itself"
    elif today >= standard:
        goes_on = f"is supported until {end}, {_days(days_left)}" if days_left is not None else "has no known end"
        message = (
            f"standard support of Kubernetes {minor} on EKS ended on {standard}; extended support {goes_on}: "
            f"{_past_standard_support(fleet)}"
        )
    else:
        message = f"EKS gives Kubernetes {minor} standard support until {end}, {_days((standard - today).days)}"
        message += f"; then {_past_standard_support(fleet)}" if severity else ""
    yield Verdict(
        "CMP007",
        "cluster.version",
        "impossible" if state == "ended" else "ok",
        message,
        numbers,
        fix if severity else "",
        concern=severity,
        # When to plan the upgrade is its owner's choice.
        edits=edits if severity in ("warning", "error") else (),
    )


def _support_concern(dates: EksVersion, today: date) -> Severity | None:
    """Return how urgent a minor's next upgrade is."""
    if dates.support_on(today) == "ended":
        return "error"
    days_left = (dates.end_of_standard_support - today).days
    if days_left <= UPGRADE_DAYS:
        return "warning"
    return "info" if days_left <= NOTICE_DAYS else None


def _past_standard_support(fleet: Fleet) -> str:
    """Return what follows for a cluster whose minor is past standard support."""
    prices = [catalog.fixed_price(f"eks.control-plane{kind}", fleet.region) for kind in (".extended", "")]
    hourly = [f"${price.value:.2f}" for price in prices if price]
    price = f"costs {hourly[0]} an hour instead of {hourly[1]}" if len(hourly) == 2 else "costs several times as much"
    if fleet.cluster.support == "standard":
        return f"EKS upgrades the cluster by itself, or with cluster.support: extended its control plane {price}"
    return f"the control plane {price}"


def _upgrade(fleet: Fleet, today: date) -> tuple[str, tuple[Edit, ...]]:
    """Return what moves the cluster to the next minor, with the pools' images: EKS goes one minor at a time."""
    cluster = fleet.cluster
    major, number = version(cluster.version)
    following = f"{major}.{number + 1}"
    minors = {name: dates for name, dates in catalog.eks_versions().items() if version(name) > (major, number)}
    if following not in minors:
        return "./inv catalog.refresh, for a later minor", ()
    in_standard = [name for name, dates in minors.items() if dates.support_on(today) == "standard"]
    not_ended = [name for name, dates in minors.items() if dates.support_on(today) != "ended"]
    newest = max(in_standard or not_ended or minors, key=version)
    edits = [put("cluster", "version", value=following)]
    fix = f"{edits[0]}" + (f", then on to {newest}, one minor at a time" if newest != following else "")
    image = catalog.latest_ami(following)
    own = [name for name, pool in fleet.pools.items() if pool.ami is not None]
    managed = [name for name in own if isinstance(fleet.pools[name].ami, EksManaged)]
    if not isinstance(cluster, NewCluster):
        return f"upgrade the cluster to {following} and write it down: {fix}", ()
    if others := [name for name in own if isinstance(fleet.pools[name].ami, Custom)]:
        return f"{fix}; pools {', '.join(others)} keep their image, and get one for it afterwards", ()
    is_possible = image is not None and _support_concern(minors[following], today) in (None, "info")
    return fix, (*edits, *_release(managed, image)) if is_possible and image else ()


def controller(fleet: Fleet, today: date) -> Iterator[Verdict]:
    """ARC and labels, GitHub's server and labels, and the age of the runner."""
    arc, needs = versions.ARC, label_support("arc")
    labelled = version(arc) >= version(needs.minimum)
    numbers: dict[str, str | int | None] = {"arc": arc, "labels_from": needs.minimum}
    yield Verdict(
        "CMP008",
        "runners",
        "ok" if labelled else "impossible",
        f"ARC {arc}: scale sets carry labels of their own from {needs.minimum} on",
        numbers,
        "" if labelled else f'ARC = "{needs.minimum}" or newer in infra/versions.py',
    )
    if fleet.github.server_version and fleet.github.kind == "server":
        yield _server(fleet.github.server_version, arc)
    yield _runner(today)


def _server(server: str, arc: str) -> Verdict:
    support = label_support("server")
    bad = next(known_faults("github-server", server, used_with={"arc": arc}), None)
    numbers: dict[str, str | int | None] = {
        "server": server,
        "arc": arc,
        "labels_from": support.minimum,
        "labels_by_default_from": support.default,
        "flag": support.flag,
    }
    key, upgrade = "github.serverVersion", f"GitHub Enterprise Server {support.default} or newer"
    if version(server) < version(support.minimum):
        message = (
            f"GitHub Enterprise Server {server} drops the labels of scale sets; "
            f"{support.minimum} is the first that can keep them"
        )
        return Verdict("CMP009", key, "impossible", message, numbers, upgrade + ", or runs-on: the scale set's name")
    if bad:
        message = f"GitHub Enterprise Server {server} with ARC {arc} was reported broken: {bad.breaks} ({bad.source})"
        return Verdict("CMP009", key, "ok", message, numbers, upgrade, concern="warning")
    if version(server) < version(support.default):
        message = f"GitHub Enterprise Server {server} keeps labels only with the feature flag {support.flag}"
        fix = f"have the flag switched on, or {upgrade}"
        return Verdict("CMP009", key, "ok", message, numbers, fix, concern="warning")
    return Verdict("CMP009", key, "ok", f"GitHub Enterprise Server {server} keeps labels", numbers)


def _runner(today: date) -> Verdict:
    runner = versions.ACTIONS_RUNNER
    age = runner_age(runner, today)
    numbers: dict[str, str | int | None] = {
        "runner": runner,
        "released": age.released.isoformat() if age.released else None,
        "age_days": (today - age.released).days if age.released else None,
        "successor": age.successor,
        "successor_released": age.followed_on.isoformat() if age.followed_on else None,
        "grace_days": RUNNER_GRACE_DAYS,
    }
    outcomes: dict[str, Outcome] = {"refused": "impossible", "unknown": "unknown"}
    return Verdict(
        "CMP010",
        "images.runner",
        outcomes.get(age.verdict, "ok"),
        age.message,
        numbers,
        "" if age.verdict == "ok" else "ACTIONS_RUNNER in infra/versions.py: the newest release",
        concern="warning" if age.verdict == "followed" else None,
    )


def _days(count: int) -> str:
    return f"{count} days from now" if count >= 0 else f"{-count} days ago"

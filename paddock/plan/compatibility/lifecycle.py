"""Ages and ends of support: Kubernetes versions, node images, drivers, the runner, and ARC with GitHub's server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date

from infra import versions
from paddock import catalog
from paddock.catalog import EksAmi, version
from paddock.catalog.github import RUNNER_GRACE_DAYS, known_bad, label_support, runner_releases, runner_successor
from paddock.fleet import Fleet
from paddock.fleet.model.cluster import KubeconfigCluster, NewCluster
from paddock.fleet.model.pool import Bottlerocket, Custom, EksManaged
from paddock.plan.compatibility.verdict import Verdict
from paddock.plan.finding import Edit, put

SOON_DAYS = 90
"""An end of support that is nearer than this is worth a warning."""
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
    minor, newest = fleet.cluster.version, catalog.latest_ami(fleet.cluster.version)
    ami = fleet.ami(fleet.pools[names[0]])
    match ami:
        case EksManaged(release=release):
            made_for, source, row = ami.kubernetes, release, _row("al2023", release, minor)
        case Custom(custom=source, kubernetes=made_for):
            row = None
        case Bottlerocket(bottlerocket=source):
            # Bottlerocket's variants carry the minor in their name; EKS picks the cluster's.
            made_for, row = minor, _row("bottlerocket", source.split("-")[0], minor)
        case _:
            return
    numbers: dict[str, str | int | None] = {"image": source, "image_kubernetes": made_for, "cluster_kubernetes": minor}
    fits = made_for == minor
    yield Verdict(
        "CMP005",
        subject,
        "ok" if fits else "impossible",
        f"image {source}{where} is for Kubernetes {made_for}, the cluster runs {minor}",
        numbers,
        "" if fits else f"an image for {minor}" + (f": {{release: {newest.release}}}" if newest else ""),
        edits=_release(names, newest) if not fits and newest and isinstance(ami, EksManaged) else (),
    )
    built = row.date if row else None
    if built is None and isinstance(ami, EksManaged):
        built = date.fromisoformat(f"{source[-8:-4]}-{source[-4:-2]}-{source[-2:]}")
    if built is None:
        reason = "no source dates it" if isinstance(ami, Bottlerocket) else "only your AMI pipeline knows"
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
        concern=bool(edits),
        edits=edits,
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
            message = f"no source says how long NVIDIA fixes driver R{number} ({', '.join(pools)})"
            yield Verdict("CMP004", subject, "unknown", message, numbers)
            continue
        days_left = (end - today).days
        yield Verdict(
            "CMP004",
            subject,
            "ok",
            f"NVIDIA fixes driver R{number} until {end}, {_days(days_left)} ({', '.join(pools)})",
            numbers,
            ""
            if days_left >= SOON_DAYS
            else "an image with a newer driver branch, or one from images.ami: {enabled: true}",
            concern=days_left < SOON_DAYS,
        )


def kubernetes(fleet: Fleet, today: date) -> Iterator[Verdict]:
    """Check how long EKS still supports the cluster's Kubernetes."""
    if isinstance(fleet.cluster, KubeconfigCluster):
        return  # not necessarily EKS
    minor, support = fleet.cluster.version, fleet.cluster.support
    dates = catalog.eks_versions().get(minor)
    if dates is None:
        message = f"the catalogue has no Kubernetes {minor}"
        yield Verdict("CMP007", "cluster.version", "unknown", message, {"version": minor}, "inv catalog.refresh")
        return
    state = dates.support_on(today)
    end = dates.end_of_standard_support if support == "standard" else dates.end_of_extended_support
    days_left = (end - today).days if end else None
    numbers: dict[str, str | int | None] = {
        "version": minor,
        "support": state,
        "end_of_standard_support": dates.end_of_standard_support.isoformat(),
        "end_of_extended_support": dates.end_of_extended_support.isoformat() if dates.end_of_extended_support else None,
        "days_left": days_left,
    }
    upgrade, edits = _upgrade(fleet, today)
    if state == "ended" or (state == "extended" and support == "standard"):
        message = f"{support} support of Kubernetes {minor} on EKS ended on {end}"
        yield Verdict("CMP007", "cluster.version", "impossible", message, numbers, upgrade, edits=edits)
    elif state == "unknown" or days_left is None:
        message = f"until when EKS supports Kubernetes {minor} is not known for {today}"
        yield Verdict("CMP007", "cluster.version", "unknown", message, numbers, "inv catalog.refresh")
    else:
        message = f"EKS gives Kubernetes {minor} {support} support until {end}, {_days(days_left)}"
        if state == "extended":
            message += ", at six times the control plane's price already"
        concern = days_left < SOON_DAYS or state == "extended"
        yield Verdict(
            "CMP007",
            "cluster.version",
            "ok",
            message,
            numbers,
            upgrade if concern else "",
            concern=concern,
            edits=edits if concern else (),
        )


def _upgrade(fleet: Fleet, today: date) -> tuple[str, tuple[Edit, ...]]:
    """Return what moves the cluster to the next minor, with the pools' images: EKS goes one minor at a time."""
    cluster = fleet.cluster
    major, number = version(cluster.version)
    minors = catalog.eks_versions()
    newest = max((v for v, k in minors.items() if k.support_on(today) == "standard"), key=version, default=None)
    following = f"{major}.{number + 1}"
    if newest is None or version(newest) <= (major, number) or following not in minors:
        return "", ()
    edits = [put("cluster", "version", value=following)]
    fix = f"{edits[0]}" + (f", then on to {newest}, one minor at a time" if newest != following else "")
    image = catalog.latest_ami(following)
    own = [name for name, pool in fleet.pools.items() if pool.ami is not None]
    managed = [name for name in own if isinstance(fleet.pools[name].ami, EksManaged)]
    if not isinstance(cluster, NewCluster):
        return f"upgrade the cluster to {following} and write it down: {fix}", ()
    if others := [name for name in own if isinstance(fleet.pools[name].ami, Custom)]:
        return f"{fix}; with images for it in pools {', '.join(others)}", ()
    supported = minors[following].support_on(today) in ("standard", cluster.support)
    is_possible = supported and image is not None
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
    yield _runner_age(today)


def _server(server: str, arc: str) -> Verdict:
    support = label_support("server")
    bad = next((b for b in known_bad() if b.server == _minor(server) and b.arc == _minor(arc)), None)
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
        message = f"GitHub Enterprise Server {server} with ARC {arc} was reported broken: {bad.what} ({bad.source})"
        return Verdict("CMP009", key, "ok", message, numbers, upgrade, concern=True)
    if version(server) < version(support.default):
        message = f"GitHub Enterprise Server {server} keeps labels only with the feature flag {support.flag}"
        fix = f"have the flag switched on, or {upgrade}"
        return Verdict("CMP009", key, "ok", message, numbers, fix, concern=True)
    return Verdict("CMP009", key, "ok", f"GitHub Enterprise Server {server} keeps labels", numbers)


def _runner_age(today: date) -> Verdict:
    runner = versions.ACTIONS_RUNNER
    released, successor = runner_releases().get(runner), runner_successor(runner)
    age = (today - released).days if released else None
    numbers: dict[str, str | int | None] = {
        "runner": runner,
        "released": released.isoformat() if released else None,
        "age_days": age,
        "successor": successor[0] if successor else None,
        "successor_released": successor[1].isoformat() if successor else None,
        "grace_days": RUNNER_GRACE_DAYS,
    }
    key, fix = "images.runner", "ACTIONS_RUNNER in infra/versions.py: the newest release"
    if successor:
        days_left = RUNNER_GRACE_DAYS - (today - successor[1]).days
        message = (
            f"runner {runner} was followed by {successor[0]} on {successor[1]}; "
            f"GitHub serves it for about {RUNNER_GRACE_DAYS} days more"
        )
        if days_left < 0:
            return Verdict("CMP010", key, "impossible", f"{message}, over since {-days_left} days", numbers, fix)
        return Verdict("CMP010", key, "ok", f"{message}: {days_left} left", numbers, fix, concern=True)
    if age is None:
        return Verdict("CMP010", key, "unknown", f"the catalogue does not know runner {runner}", numbers, fix)
    if age <= RUNNER_GRACE_DAYS:
        return Verdict("CMP010", key, "ok", f"runner {runner} is {age} days old", numbers)
    message = (
        f"runner {runner} is {age} days old; the catalogue knows no successor, but if one came out more than "
        f"{RUNNER_GRACE_DAYS} days ago GitHub gives it no jobs"
    )
    return Verdict("CMP010", key, "unknown", message, numbers, f"look for a newer release; {fix}")


def _minor(text: str) -> str:
    return ".".join(text.split(".")[:2])


def _days(count: int) -> str:
    return f"{count} days from now" if count >= 0 else f"{-count} days ago"

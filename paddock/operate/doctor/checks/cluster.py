"""The cluster of the fleet's name: whose it is, its state and version, what EKS says of an upgrade, and who may enter.

Who runs `pulumi up` puts charts into the cluster, so it has to be an administrator there by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from paddock.errors import program
from paddock.fleet import ExistingCluster, NewCluster
from paddock.fleet.model.cluster import same_principal
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Result, Status
from paddock.operate.inventory import access, eks
from paddock.operate.inventory.access import Entry
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.plan.engine.resource_types import ACCESS_ENTRY, CLUSTER, POD_IDENTITY_ASSOCIATION
from paddock.pulumi_cli.stack import Resource as Held

ACCESS, AGENT = "cluster access", "eks-pod-identity-agent"
_access = partial(Result, area="permissions", subject=ACCESS)
_DEPLOYER = "::cluster-deployer"
"""End of the URN of the entry that the program makes for the one who runs it first."""
_WAIT = {
    "CREATING": "aws eks wait cluster-active --region {region} --name {name}",
    "UPDATING": "aws eks wait cluster-active --region {region} --name {name}",
    "PENDING": "aws eks wait cluster-active --region {region} --name {name}",
    "DELETING": "aws eks wait cluster-deleted --region {region} --name {name}",
}
_BACK = (
    ": EKS goes back one minor at most, within 7 days of the upgrade and with no node newer than that, and pulumi up "
    "changes the nodes last"
)
"""docs.aws.amazon.com/eks/latest/userguide/rollback-cluster.html, 2026-11-28."""
_BY_STATUS: dict[str, Status] = {"ERROR": "fail", "WARNING": "warn", "PASSING": "pass"}


def cluster(context: Context) -> Iterator[Result]:
    """Compare the cluster that has the fleet's name with what the stack says of it."""
    wanted, name, region = context.fleet.cluster, context.fleet.cluster_name, context.fleet.region
    result = partial(Result, area="software", subject=f"cluster {name}")
    there = context.cluster()
    if there is None:
        if isinstance(wanted, ExistingCluster):
            message = f"EKS has no cluster of this name in {region}"
            yield result(status="fail", message=message, fix=f"aws eks list-clusters --region {region}")
        else:
            yield result(status="pass", message="not there yet: pulumi up makes it")
        return
    if there.status != "DELETING" and (whose := of_others(context, there)):
        message = f"a cluster of this name is there, and {whose}: EKS has a name once in an account and region"
        fix = f"name: another one than {context.fleet.name}, in Pulumi.{context.stack.name}.yaml"
        if there.tags and there.tags.get("paddock:fleet") == context.fleet.name:  # whose state was lost
            kept = "the state of the stack that made it (pulumi stack import --file FILE)"
            fix = f"{kept}; without it {program()} destroy --stack {context.stack.name} lists what is there; or {fix}"
        yield result(status="fail", message=message, fix=fix)
        return
    if there.status != "ACTIVE":
        fix = _WAIT.get(there.status, "aws eks describe-cluster --region {region} --name {name}")
        message = f"EKS says that it is {there.status}, and takes no change until it is ACTIVE"
        yield result(status="fail", message=message, fix=fix.format(region=region, name=name))
        return
    steps = _minor(wanted.version) - _minor(there.version)
    if steps == 0:
        yield result(status="pass", message=f"active, Kubernetes {there.version}")
    elif steps < 0 or isinstance(wanted, ExistingCluster):
        back = "" if isinstance(wanted, ExistingCluster) else _BACK
        message = f"it runs Kubernetes {there.version}, the stack says {wanted.version}{back}"
        yield result(status="fail", message=message, fix=f'cluster.version: "{there.version}"')
    elif steps > 1:
        major, _, minor = there.version.partition(".")
        message = (
            f"it runs Kubernetes {there.version}, the stack says {wanted.version}: EKS goes up one minor at a time"
        )
        yield result(status="fail", message=message, fix=f'cluster.version: "{major}.{int(minor) + 1}" first')
    else:
        yield result(status="pass", message=f"active, Kubernetes {there.version}; pulumi up upgrades it")
        yield from _insights(context, there)


def of_others(context: Context, there: eks.Cluster) -> str:
    """Return what says that a cluster of the fleet's name is not this stack's; empty where nothing does."""
    if not isinstance(context.fleet.cluster, NewCluster):
        return ""
    tag = None if there.tags is None else there.tags.get("paddock:fleet", "")
    try:
        held = context.state()
    except Unavailable:
        other = tag is not None and tag != context.fleet.name
        return f"has {f'the tag of fleet {tag}' if tag else 'not the tag of this fleet'}" if other else ""
    if any(item.type == CLUSTER and item.id == there.name for item in held):
        return ""
    return f"is not in the state of stack {context.stack.name}{f', but has the tag of fleet {tag}' if tag else ''}"


def _insights(context: Context, there: eks.Cluster) -> Iterator[Result]:
    """Yield a line for each thing that EKS found in the way of the stack's version."""
    version = context.fleet.cluster.version
    result = partial(Result, area="software", subject=f"upgrade to {version}")
    found = eks.read_insights(context.aws, there.name, version)
    command = f"aws eks list-insights --region {context.fleet.region} --cluster-name {there.name}"
    if not found:
        message = f"EKS has not looked yet at what an upgrade to {version} meets: it does once a day"
        yield result(status="unknown", message=message, fix=command)
        return
    for insight in found:
        if insight.status != "PASSING":
            status: Status = _BY_STATUS.get(insight.status, "unknown")
            message = f"{insight.name}: {insight.reason or insight.status}"
            yield result(status=status, message=message, fix=insight.recommendation or command)
    if all(insight.status == "PASSING" for insight in found):
        yield result(status="pass", message=f"all {len(found)} upgrade insights of EKS pass")


def roles_of_pods(context: Context) -> Iterator[Result]:
    """Check that an adopted cluster gives pods the roles that the stack associates with them."""
    pods = sorted(str(item.inputs["serviceAccount"]) for item in context.graph().of_type(POD_IDENTITY_ASSOCIATION))
    if not pods or context.cluster() is None:  # another line says that it is not there
        return
    result, name = partial(Result, area="software", subject=AGENT), context.fleet.cluster_name
    at = f"--region {context.fleet.region} --cluster-name {name} --addon-name {AGENT}"
    try:
        addon = context.aws.read("eks", "describe_addon", clusterName=name, addonName=AGENT)["addon"]
    except NotFound:
        message = (
            f"no add-on of cluster {name}: unless it has the agent by other means, as in EKS Auto Mode, "
            f"{', '.join(pods)} gets no role, and no node starts"
        )
        yield result(status="warn", message=message, fix=f"aws eks create-addon {at}")
        return
    status = str(addon.get("status", ""))
    if status in ("ACTIVE", "UPDATING", "CREATING"):
        yield result(status="pass", message=f"EKS has it: {status}")
        return
    issues = "; ".join(str(issue.get("message", "")) for issue in (addon.get("health") or {}).get("issues") or ())
    message = f"EKS says that it is {status}{f': {issues}' if issues else ''}"
    yield result(status="warn", message=message, fix=f"aws eks describe-addon {at}")


def deployer(context: Context) -> Iterator[Result]:
    """Compare who runs `pulumi up` with whom the cluster lets in as an administrator."""
    if isinstance(context.fleet.cluster, NewCluster):
        yield from _made_here(context, context.fleet.cluster)
    elif there := context.cluster():
        yield _adopted(context, there)


def _made_here(context: Context, wanted: NewCluster) -> Iterator[Result]:
    caller = context.deployer()
    arn, entries = caller.arn, wanted.access
    admins = [name for name, entry in entries.items() if entry.may_deploy]
    listed = next((name for name, entry in entries.items() if same_principal(entry.principal, arn)), None)
    if listed is not None and caller.exact and entries[listed].principal != arn:
        message = (
            f"cluster.access.{listed} names {entries[listed].principal}, and EKS knows the role by its path: {arn}"
        )
        yield _access(status="fail", message=message, fix=f"cluster.access.{listed}.principal: {arn}")
    elif listed in admins:
        yield _access(status="pass", message=f"{arn} is cluster.access.{listed}, an administrator")
    elif listed is not None:
        yield _access(
            status="fail",
            message=f"{arn}, which runs pulumi up, is cluster.access.{listed} with less than it needs: "
            + (
                "EKS has one access entry a principal, and refuses the administrator's that pulumi up makes for it"
                if not admins
                else "the cluster refuses its first chart"
            ),
            fix=f"cluster.access.{listed}: {{principal: {arn}, policy: cluster-admin}}",
        )
    else:
        yield _unlisted(context, wanted, arn, admins)


def _unlisted(context: Context, wanted: NewCluster, arn: str, admins: list[str]) -> Result:
    """Judge a deployer that the stack file does not name: by the entry that the program makes, or that is there."""
    note = ""
    try:
        there = context.cluster()
        entry = access.read_entry(context.aws, there.name, arn) if there else None
    except Unavailable as error:
        if not admins:
            raise
        there, entry, note = None, None, f"; whether it is one by hand is not known: {error}"
    if entry and entry.may_deploy and not (admins and _held_entry(context, arn)):
        return _access(status="pass", message=f"{arn} is an administrator of the cluster")
    other = None if admins or not there or entry else _held_entry(context)
    if not admins and not entry and not other:
        return _access(status="pass", message=f"pulumi up makes {arn} an administrator, as cluster.access lists none")
    if admins:
        lost = ": the entry that it has goes with this pulumi up" if entry and entry.may_deploy else ""
        who = f"the administrators are cluster.access.{', cluster.access.'.join(admins)}{lost}"
    elif entry:
        who = f"its access entry in the cluster says {', '.join(entry.policies) or 'nothing'}"
    else:
        who = f"the cluster lets in {other.inputs.get('principalArn') if other else 'others'}, which made it"
    name = next(name for name in ("deployer", *(f"deployer-{n}" for n in range(2, 99))) if name not in wanted.access)
    return _access(
        status="fail",
        message=f"{arn}, which runs pulumi up, is not an administrator: {who}, so the cluster refuses its "
        f"first chart{note}",
        fix=f"cluster.access.{name}: {{principal: {arn}, policy: cluster-admin}}",
    )


def _held_entry(context: Context, arn: str = "") -> Held | None:
    """Return the entry that the program made for who deployed first, or for one principal. Raises Unavailable."""
    made = (item for item in context.state() if item.type == ACCESS_ENTRY and item.urn.endswith(_DEPLOYER))
    return next((item for item in made if not arn or same_principal(item.id.partition(":")[2], arn)), None)


def _adopted(context: Context, there: eks.Cluster) -> Result:
    arn = context.deployer().arn
    by_map = "the cluster's ConfigMap aws-auth may say who enters, and the doctor does not read it"
    ask = "kubectl auth can-i '*' '*' --all-namespaces"
    if not there.authentication.startswith("API"):
        return _access(status="unknown", message=f"{arn}: {by_map}", fix=ask)
    entry: Entry | None = access.read_entry(context.aws, there.name, arn)
    if entry and entry.may_deploy:
        return _access(status="pass", message=f"{entry.principal} is an administrator of the cluster")
    said = "has no access entry" if entry is None else f"has {', '.join(entry.policies) or 'no policy'} there"
    if there.authentication != "API" or (entry and entry.groups):
        why = f"groups {', '.join(entry.groups)} may allow it more" if entry and entry.groups else by_map
        return _access(status="unknown", message=f"{arn} {said}; {why}", fix=ask)
    at = f"--region {context.fleet.region} --cluster-name {there.name} --principal-arn {arn}"
    policy = (
        "--policy-arn arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy --access-scope type=cluster"
    )
    make = f"aws eks create-access-entry {at} && " if entry is None else ""
    message = f"{arn}, which runs pulumi up, {said}: the cluster refuses its first chart"
    return _access(status="fail", message=message, fix=f"{make}aws eks associate-access-policy {at} {policy}")


def _minor(version: str) -> int:
    """Return the number behind the dot. Raises Unavailable for what is not a version."""
    minor = version.partition(".")[2]
    if not minor.isdecimal():
        raise Unavailable(f"EKS gives no version of the cluster that can be read: {version or 'nothing'}")
    return int(minor)

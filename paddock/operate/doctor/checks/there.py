"""Names that are taken: what pulumi up would make under a name of its own choice, and the account has already.

AWS refuses such a thing when half of the stack is made. What the stack's state holds is its own, and is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from paddock.fleet import ExistingCluster, ExistingNetwork
from paddock.fleet.model.images import Push
from paddock.operate.doctor.checks import cluster
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Result
from paddock.operate.inventory import access, account, eks, things
from paddock.operate.inventory.account import AUDIENCE, Endpoint, Thing
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.fake_cloud import ACCOUNT
from paddock.plan.engine.graph import Resource
from paddock.pulumi_cli.stack import Resource as Held

AREA = "already there"
_result = partial(Result, area=AREA)
_ADDON_NAMESPACE = "kube-system"
"""Namespace of the pods of EKS's add-ons that have a role here."""
_SHOWN = 5
_PROVIDERS = "aws iam list-open-id-connect-providers"


@dataclass(frozen=True, slots=True)
class Kind:
    """A type whose things have names that AWS gives once."""

    title: str
    type: str
    keys: tuple[str, ...]
    """Inputs that make the name."""
    read: Callable[..., Thing | None]
    """Takes the context and the name's parts. Raises Unavailable."""
    removal: str
    """Command that removes a thing, with its `name`, the parts of that in `parts`, and `region`."""
    in_cluster: bool = False
    instead: str = ""
    """Fix in the place of an import, which would be replaced at once."""
    end: str = "pulumi up fails there"
    """What the second thing of a name meets."""


def _alarm(context: Context, name: str) -> Thing | None:
    prefix = f"paddock-{context.fleet.name}-"
    return context.shared.get("alarms", lambda: account.read_alarms(context.aws, prefix)).get(name)


def _addon(context: Context, cluster_name: str, name: str) -> Thing | None:
    names = context.shared.get("add-ons", lambda: eks.read_addons(context.aws, cluster_name))
    tags = partial(eks.read_tags, context.aws, "addon", cluster_name, addonName=name)
    return Thing(f"{cluster_name}:{name}", tags) if name in names else None


def _association(context: Context, cluster_name: str, namespace: str, service_account: str) -> Thing | None:
    ids = context.shared.get("associations", lambda: eks.read_associations(context.aws, cluster_name))
    id_ = ids.get((namespace, service_account))
    if id_ is None:
        return None
    tags = partial(eks.read_tags, context.aws, "pod_identity_association", cluster_name, associationId=id_)
    return Thing(f"{cluster_name},{id_}", tags)


def _entry(context: Context, cluster_name: str, principal: str) -> Thing | None:
    there = context.shared.get("access entries", lambda: access.read_principals(context.aws, cluster_name))
    tags = partial(eks.read_tags, context.aws, "access_entry", cluster_name, principalArn=principal)
    return Thing(f"{cluster_name}:{principal}", tags) if principal in there else None


KINDS = (
    Kind(
        "log groups", types.LOG_GROUP, ("name",),
        lambda context, name: account.read_log_group(context.aws, name),
        "aws logs delete-log-group --region {region} --log-group-name {name}",
    ),
    Kind(
        "repositories", types.REPOSITORY, ("name",),
        lambda context, name: account.read_repository(context.aws, name),
        "aws ecr delete-repository --region {region} --repository-name {name}",
        instead="another name in images.repositories, as ECR never changes the key of a repository",
    ),
    Kind(
        "identity provider", types.OPEN_ID_CONNECT_PROVIDER, ("url",),
        lambda context, url: account.read_identity_provider(context.aws, url),
        "aws iam delete-open-id-connect-provider --open-id-connect-provider-arn {id}",
    ),
    Kind(
        "alarms", types.METRIC_ALARM, ("name",), _alarm,
        "aws cloudwatch delete-alarms --region {region} --alarm-names {name}",
        end="pulumi up overwrites it",
    ),
    Kind(
        "add-ons", types.ADDON, ("clusterName", "addonName"), _addon,
        "aws eks delete-addon --region {region} --cluster-name {parts[0]} --addon-name {parts[1]}", True,
    ),
    Kind(
        "Pod Identity associations", types.POD_IDENTITY_ASSOCIATION, ("clusterName", "namespace", "serviceAccount"),
        _association,
        "aws eks delete-pod-identity-association --region {region} --cluster-name {parts[0]} "
        "--association-id {id}", True,
    ),
    Kind(
        "access entries", types.ACCESS_ENTRY, ("clusterName", "principalArn"), _entry,
        "aws eks delete-access-entry --region {region} --cluster-name {parts[0]} --principal-arn {name}", True,
    ),
)  # fmt: skip


def names(kind: Kind) -> Callable[[Context], Iterator[Result]]:
    """Return the check of all things of a kind."""
    return partial(_names, kind)


def planned(kind: Kind, context: Context) -> Iterator[tuple[Resource, tuple[str, ...]]]:
    """Yield the resources of a kind whose name is known before they are made, each with the parts of its name."""
    graph = context.graph()
    for resource in graph.of_type(kind.type):
        parts = tuple(part for key in kind.keys if isinstance(part := resource.inputs.get(key), str))
        made_of = [graph.resources[urn] for urn in resource.property_dependencies.get("name", ())]
        if len(parts) < len(kind.keys) or not all("name" in item.inputs for item in made_of):
            continue  # Pulumi makes up the name, or what it is made of
        if f":{ACCOUNT}:" in parts[-1]:  # the plan's stand-in for who deploys
            parts = (*parts[:-1], context.deployer().arn)
        yield resource, parts
    if kind.type == types.POD_IDENTITY_ASSOCIATION:  # an add-on makes those of its own pods
        for addon in graph.of_type(types.ADDON):
            for association in addon.inputs.get("podIdentityAssociations", ()):
                yield addon, (str(addon.inputs["clusterName"]), _ADDON_NAMESPACE, association["serviceAccount"])


def _names(kind: Kind, context: Context) -> Iterator[Result]:
    if kind.in_cluster:
        there = context.cluster()
        if there is None or cluster.of_others(context, there):
            return  # nothing can be in its way, or another line says what is
    free, own, judged = [], [], False
    for resource, parts in planned(kind, context):
        name = parts[-1].removeprefix("https://")
        thing = kind.read(context, *parts)
        if thing is None:
            free.append(name)
            continue
        try:
            mine = _is_own(context, resource, thing)
        except Unavailable as error:
            message = f"it is there, and whether it is this stack's is not known: {error}"
            if kind.type == types.OPEN_ID_CONNECT_PROVIDER:
                error.fix = "; or ".join(filter(None, (error.fix, f"images.push.provider: {thing.id}")))
            yield _result(status="unknown", subject=name, message=message, fix=error.fix, permission=error.permission)
            judged = True
            continue
        if mine:
            own.append(name)
        else:
            yield _taken(context, kind, resource, thing, parts)
            judged = True
    if not judged and (free or own):
        said = [
            f"{', '.join(listed)} {words}" for listed, words in ((free, "free"), (own, "this stack's own")) if listed
        ]
        yield _result(status="pass", subject=kind.title, message="; ".join(said))


def _is_own(context: Context, resource: Resource, thing: Thing) -> bool:
    """Return whether the stack made a thing: its state says so, else its tag does. Raises Unavailable."""
    try:
        held = context.state()
    except Unavailable as error:
        if thing.encrypted is False:
            return False  # the program encrypts each of its own
        try:
            return thing.tags().get("paddock:fleet") == context.fleet.name
        except Unavailable as tags:
            raise Unavailable(
                f"{error}; {tags}", "; ".join(filter(None, (error.fix, tags.fix))), tags.permission
            ) from None
    if any(item.urn == resource.urn for item in held):
        return True
    # An entry of another resource's would be made a second time, before the first goes.
    return resource.type != types.ACCESS_ENTRY and _held_as(context, resource, thing) is not None


def _held_as(context: Context, resource: Resource, thing: Thing) -> Held | None:
    """Return the resource under which the state holds a thing, whatever its name there."""
    return next((item for item in _held(context) if (item.type, item.id) == (resource.type, thing.id)), None)


def _taken(context: Context, kind: Kind, resource: Resource, thing: Thing, parts: tuple[str, ...]) -> Result:
    name, adopted = parts[-1].removeprefix("https://"), isinstance(context.fleet.cluster, ExistingCluster)
    id_ = thing.id.rpartition(",")[2]
    removal = kind.removal.format(region=context.fleet.region, name=parts[-1], parts=parts, id=id_)
    import_ = _import(context, resource, thing)
    what, fix = "the account has it already", f"{kind.instead or import_}; or, where nobody needs it: {removal}"
    if kind.in_cluster:
        what = f"cluster {parts[0]} has it already"
    if kind.type == types.OPEN_ID_CONNECT_PROVIDER:
        what = "the account has its provider for GitHub's tokens already, and can have one"
        fix = f"images.push.provider: {thing.id}; or, where it is this stack's alone: {import_}"
    elif resource.type == types.ADDON and adopted:
        fix = f"cluster.present: [{resource.inputs['addonName']}]"
        fix += f"; or, to have pulumi up manage it: {import_}" if kind.type == types.ADDON else f"; or {removal}"
    elif resource.type != kind.type:
        fix = removal
    elif kind.type == types.POD_IDENTITY_ASSOCIATION and adopted:
        fix = f"where nobody needs it: {removal}; where its role is to become this stack's: {import_}"
    message = f"{what}, and {_foreign(context)}: {kind.end}"
    if other := _held_as(context, resource, thing):
        message = f"{what}, for {other.title} of this stack, and pulumi up makes the second before that goes"
        delete = f"pulumi state delete '{other.urn}' --target-dependents --yes --stack {context.stack.name}"
        fix = f"{delete} && {import_}"
    return _result(status="fail", subject=name, message=message, fix=fix)


def _foreign(context: Context) -> str:
    try:
        context.state()
    except Unavailable:
        return "it lacks what marks this stack's own, whose state cannot be read"
    return "it is not in this stack's state"


def _import(context: Context, resource: Resource, thing: Thing) -> str:
    """Return the command that hands a thing to the stack, under the resource's own parent and provider.

    Both have to be in the state before: without them the next `up` would make another thing.
    """
    held = {item.urn for item in _held(context)}
    provider = resource.provider.rpartition("::")[0]
    stack = f"--stack {context.stack.name}"
    missing = [f"--target '{urn}'" for urn in (provider, resource.parent) if urn not in held]
    first = f"pulumi up {stack} {' '.join(missing)} && " if missing else ""
    of = f"--parent 'parent={resource.parent}' --provider 'provider={provider}'"
    return f"{first}pulumi import {resource.type} {resource.name} '{thing.id}' {of} --generate-code=false {stack}"


def _held(context: Context) -> tuple[Held, ...]:
    """Return what the stack holds, nothing where that is not known."""
    try:
        return context.state()
    except Unavailable:
        return ()


def present(context: Context) -> Iterator[Result]:
    """Check that EKS has the add-ons that the stack leaves to others. Raises Unavailable."""
    cluster = context.fleet.cluster
    listed = cluster.present if isinstance(cluster, ExistingCluster) else ()
    names = context.shared.get("add-ons", lambda: eks.read_addons(context.aws, context.fleet.cluster_name))
    for name in listed:
        if name in names:
            yield _result(status="pass", subject=f"cluster.present: {name}", message="EKS has it")
        else:
            message = "no add-on of EKS: where nobody installed it by other means, claims of volumes wait for ever"
            fix = "kubectl get csidriver ebs.csi.aws.com; without it leave it out of cluster.present"
            yield _result(status="warn", subject=f"cluster.present: {name}", message=message, fix=fix)


def provider(push: Push) -> Callable[[Context], Iterator[Result]]:
    """Return the check of the identity provider that a stack file names."""
    return partial(_provider, push)


def _provider(push: Push, context: Context) -> Iterator[Result]:
    arn, key = str(push.provider), "images.push.provider"
    own = next((item for item in _held(context) if item.id == arn and not item.retained), None)
    if own:  # made by a program that did not leave it behind
        message = f"this stack made {arn}, and removes it where the key names it"
        fix = f"pulumi state delete '{own.urn}' --stack {context.stack.name}, which leaves it in the account"
        yield _result(status="fail", subject=key, message=message, fix=fix)
        return
    try:
        audiences = account.read_audiences(context.aws, arn)
    except NotFound:
        yield _result(status="fail", subject=key, message=f"the account has no {arn}", fix=f"{_PROVIDERS}; or no {key}")
        return
    if AUDIENCE not in audiences:
        message = f"it takes tokens for {', '.join(audiences) or 'nobody'}, and the workflows' are for {AUDIENCE}"
        at = f"--open-id-connect-provider-arn {arn} --client-id {AUDIENCE}"
        fix = f"aws iam add-client-id-to-open-id-connect-provider {at}"
        yield _result(status="fail", subject=key, message=message, fix=fix)
        return
    yield _result(status="pass", subject=key, message=f"{arn} takes tokens for {AUDIENCE}")


def endpoints(context: Context) -> Iterator[Result]:
    """Look for endpoints of others in the fleet's VPC: two of one service cannot both have its name."""
    wanted = {
        resource.inputs.get("serviceName")
        for resource in context.graph().of_type(types.VPC_ENDPOINT)
        if resource.inputs.get("privateDnsEnabled")
    }
    network = context.fleet.network
    adopted = [network.existing.vpc] if isinstance(network, ExistingNetwork) and wanted else []
    own = [] if isinstance(network, ExistingNetwork) else account.read_vpcs(context.aws, context.fleet.name)
    for vpc in (*adopted, *own):
        inside = account.read_endpoints(context.aws, vpc)
        others = [item for item in inside if item.tags.get("paddock:fleet") != context.fleet.name]
        yield from _others(context, vpc, others, wanted)


def interfaces(context: Context) -> Iterator[Result]:
    """Look for interfaces of others in a VPC that this fleet made: its subnets do not go before they do."""
    for vpc in account.read_vpcs(context.aws, context.fleet.name):
        answers = things.described(context.aws, "ec2:network-interface", {"vpc-id": [vpc]})
        found = things.merged(
            things.of_answer("ec2:network-interface", answer, context.fleet.region)
            for answer in answers
            if things.tags_of(answer).get("paddock:fleet") != context.fleet.name
        )
        named = [
            f"{item.id} ({'; '.join(item.about) or 'no description'}{f', made by {item.made}' if item.made else ''})"
            for item in found
            if not item.part_of
        ]
        more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
        message = f"of others: {', '.join(named[:_SHOWN])}{more}; destroy has to wait until they are gone"
        subject = f"interfaces in {vpc}"
        yield _result(status="pass", subject=subject, message=message if named else "none of others")


def _others(context: Context, vpc: str, others: list[Endpoint], wanted: set[object]) -> Iterator[Result]:
    beside = []
    for item in others:
        if not (item.private_dns and item.service in wanted):
            beside.append(f"{item.id} ({item.service}{', made by AWS' if item.managed else ''})")
            continue
        service = item.service.removeprefix(f"com.amazonaws.{context.fleet.region}.")
        message = (
            f"it has the name of {item.service} in {vpc}, which EC2 gives one endpoint: pulumi up fails at its own"
        )
        remove = f"aws ec2 delete-vpc-endpoints --region {context.fleet.region} --vpc-endpoint-ids {item.id}"
        fix = f"network.endpoints without {service}; or, where nobody needs it: {remove}"
        yield _result(status="fail", subject=item.id, message=message, fix=fix)
    if beside:
        own = isinstance(context.fleet.network, ExistingNetwork)
        later = "" if own else "; destroy has to wait until they are gone from its subnets"
        yield _result(status="pass", subject=f"endpoints in {vpc}", message=f"of others: {', '.join(beside)}{later}")
    elif not others:
        yield _result(status="pass", subject=f"endpoints in {vpc}", message="none of others")

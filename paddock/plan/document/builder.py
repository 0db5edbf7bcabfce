"""The document of a plan, made from the plan."""

from __future__ import annotations

from datetime import date
from typing import overload

import paddock
from paddock import catalog
from paddock.catalog import InstanceType
from paddock.fleet import Fleet, Runner, nodes
from paddock.fleet.model.pool import (
    Bottlerocket,
    CapacityBlock,
    Custom,
    EksManaged,
    GpuPool,
    Mig,
    Mps,
    Reserved,
    TimeSlicing,
)
from paddock.fleet.sizing.capacity import Resources, runner_request
from paddock.plan import fit, quota, rules
from paddock.plan.compatibility import verdict
from paddock.plan.cost import estimate, fixed, money, options, rightsizing
from paddock.plan.cost import nodes as cost_nodes
from paddock.plan.document import model
from paddock.plan.engine import graph
from paddock.plan.engine.values import redact
from paddock.plan.plan import Plan

_PRICE_FILES = {"fixed_prices.json", "instance_prices.json"}


def build_document(plan: Plan) -> model.PlanDocument:
    """Return the plan as data, with secrets hidden."""
    fleet = plan.stack.fleet
    return model.PlanDocument(
        schema_version=model.SCHEMA,
        stack=plan.stack.name,
        project=plan.stack.project,
        fleet=model.FleetSummary(name=fleet.name, region=fleet.region, kubernetes=fleet.cluster.version),
        github=model.GitHub(url=fleet.github.url),
        pools=[_pool(fleet, pool) for pool in fleet.pools.values()],
        runners=[_runner(fleet, runner) for runner in fleet.runners.values()],
        resources=[_resource(resource) for resource in plan.graph.resources.values()],
        outputs=redact(plan.graph.outputs),
        lookups=[model.Lookup(token=token, arguments=redact(arguments)) for token, arguments in plan.graph.lookups],
        fit=[_fit(fit) for fit in plan.fits],
        compatibility=[_verdict(verdict) for verdict in plan.compatibility],
        rules=_rules(plan.rules),
        cost=_cost(plan.cost),
        right_size=[_right_size(size) for size in plan.sizes],
        quota=[_quota(need) for need in plan.quota],
        findings=list(plan.findings),
        planned=plan.today.isoformat(),
        paddock=paddock.__version__,
        catalog=[
            model.CatalogFile(
                file=stamp.file,
                as_of=stamp.as_of.isoformat(),
                max_age_days=stamp.max_age_days,
                sources=[model.CatalogSource(name=source.name, url=source.url) for source in stamp.sources],
            )
            for stamp in catalog.stamps()
        ],
    )


def _pool(fleet: Fleet, pool: GpuPool) -> model.Pool:
    match pool.capacity:
        case Reserved(reserved=reservation) | CapacityBlock(capacity_block=reservation):
            pass
        case _:
            reservation = ""
    return model.Pool(
        name=pool.name,
        gpu=model.Gpu(
            name=pool.gpu.name,
            architecture=pool.gpu.architecture,
            compute_capability=pool.gpu.compute_capability,
        ),
        instances=[_instance(pool, instance) for instance in pool.types],
        capacity=list(nodes.capacities(pool)) if fleet.owns_nodes else [],
        reservation=reservation,
        nodes=model.NodeCount(min=pool.nodes.min, max=pool.nodes.max),
        zones=list(pool.zones),
        sharing=_sharing(pool),
        shares=pool.replicas,
        image=_image(fleet, pool),
    )


def _sharing(pool: GpuPool) -> str:
    """Return how jobs share a GPU of the pool; empty where they do not."""
    match pool.sharing:
        case TimeSlicing(time_slicing=clients):
            return f"time-slicing {clients}"
        case Mps(mps=clients):
            return f"MPS {clients}"
        case Mig(mig=profile):
            return f"MIG {profile}"
        case _:
            return ""


def _image(fleet: Fleet, pool: GpuPool) -> str:
    """Return the node image of the pool in a word or two."""
    if not fleet.owns_nodes:
        return "as it is"
    match fleet.ami(pool):
        case EksManaged(release=release):
            return f"EKS NVIDIA {release}"
        case Bottlerocket(bottlerocket=release):
            return f"Bottlerocket NVIDIA {release}"
        case Custom(custom=ami, driver=driver):
            return f"{ami}, driver {driver}"
        case _:
            return "unknown"


def _instance(pool: GpuPool, instance: InstanceType) -> model.Instance:
    return model.Instance(
        name=instance.name,
        vcpus=instance.vcpus,
        memory=instance.memory_mib,
        gpus=instance.gpu_count,
        gpu_fraction=instance.gpu_fraction,
        gpu_memory=instance.gpu_memory_mib,
        shares=pool.gpu_resources_per_node(instance),
        nvme_gb=instance.nvme_total_gb,
    )


def _runner(fleet: Fleet, runner: Runner) -> model.Runner:
    request = runner_request(fleet, runner)
    return model.Runner(
        name=runner.name,
        scale_set=runner.scale_set,
        pool=runner.pool,
        labels=list(runner.effective_labels),
        gpus=runner.gpus,
        cpu=request.cpu_m,
        memory=request.memory_mib,
        min=runner.min,
        max=fleet.max_runners(runner),
        warm=[model.Warm(at=entry.at, min=entry.min, time_zone=entry.time_zone) for entry in runner.warm],
        container=runner.container,
        image=runner.image or fleet.images.runner or "",
        priority=runner.priority,
        volumes={key: volume.mount for key, volume in runner.volumes.items()},
    )


def _resource(resource: graph.Resource) -> model.Resource:
    return model.Resource(
        urn=resource.urn,
        type=resource.type,
        name=resource.name,
        parent=resource.parent,
        custom=resource.custom,
        inputs=redact(resource.inputs),
        dependencies=list(resource.dependencies),
        property_dependencies={key: list(urns) for key, urns in resource.property_dependencies.items()},
        provider=resource.provider,
        protect=resource.protect,
        ignore_changes=list(resource.ignore_changes),
        delete_before_replace=resource.delete_before_replace,
        expanded=resource.expanded,
    )


def _fit(fit: fit.Fit) -> model.Fit:
    return model.Fit(
        runner=fit.runner,
        pool=fit.pool,
        instance=fit.instance,
        per_node=fit.per_node,
        limiting=fit.limiting,
        slack=_amounts(fit.slack),
        stranded_gpus=fit.stranded_gpus,
        request=_amounts(fit.request),
        available=_amounts(fit.available),
        deficit=_amounts(fit.deficit),
        memory=fit.source,
        cautious_per_node=fit.cautious_per_node,
    )


def _amounts(amount: Resources) -> model.Amounts:
    return model.Amounts(
        cpu=amount.cpu_m,
        memory=amount.memory_mib,
        gpus=amount.gpus,
        pods=amount.pods,
        ephemeral_storage=amount.ephemeral_mib,
    )


def _verdict(verdict: verdict.Verdict) -> model.Verdict:
    return model.Verdict(
        id=verdict.id,
        subject=verdict.subject,
        verdict=verdict.verdict,
        message=verdict.message,
        numbers=dict(verdict.numbers),
        fix=verdict.fix,
    )


def _rules(evaluation: rules.Evaluation) -> model.Rules:
    return model.Rules(
        evaluated=[model.EvaluatedRule(id=id_, title=rules.RULES[id_].title) for id_ in evaluation.evaluated],
        suppressed=[
            model.Suppressed(
                rule=suppressed.violation.rule.id,
                resource=suppressed.violation.detail.subject,
                reason=suppressed.suppression.reason,
                expires=suppressed.suppression.expires.isoformat(),
            )
            for suppressed in evaluation.suppressed
        ],
        unseen=[
            model.Unseen(rule=unseen.rule, subject=unseen.subject, property=unseen.property)
            for unseen in evaluation.unseen
        ],
    )


def _cost(cost: estimate.Cost) -> model.Cost:
    month = cost.month
    return model.Cost(
        region=cost.region,
        hours_a_month=money.HOURS_A_MONTH,
        fixed=model.FixedCost(items=[_cost_line(line) for line in cost.fixed], total=_money(cost.fixed_total)),
        by_use=[_cost_line(line) for line in cost.by_use],
        pools=[_pool_cost(pool) for pool in cost.pools],
        runners=[_runner_cost(runner) for runner in cost.runners],
        month=model.Month(
            low=_money(month.low),
            expected=_money(month.expected),
            high=_money(month.high),
            jobs={name: round(count, 1) for name, count in cost.jobs.items()},
        ),
        assumptions=list(cost.assumptions),
        resources=model.PricedResources(
            priced=cost.counts["priced"],
            free=cost.counts["free"],
            unpriced=cost.counts["unpriced"],
            types=[
                model.PricedType(
                    type=entry.type, count=entry.count, kind=entry.kind, why=entry.why, names=list(entry.names)
                )
                for entry in cost.census
            ],
        ),
        missing=list(cost.missing),
        sources={
            source.key: model.PriceSource(name=source.name, url=source.url, as_of=_day(source.as_of))
            for stamp in catalog.stamps()
            if stamp.file in _PRICE_FILES
            for source in stamp.sources
        },
    )


def _cost_line(line: fixed.Line) -> model.CostLine:
    return model.CostLine(
        item=line.item,
        quantity=line.quantity,
        what=line.what,
        price=_money(line.price),
        monthly=_money(line.monthly),
        note=line.note,
    )


def _pool_cost(pool: cost_nodes.PoolCost) -> model.PoolCost:
    return model.PoolCost(
        pool=pool.pool,
        offers=[
            model.Offer(
                instance=offer.instance,
                capacity=offer.capacity,
                instance_hour=_money(offer.price),
                volume_hour=_money(offer.volume),
                node_hour=_money(offer.node),
            )
            for offer in pool.offers
        ],
        groups=[
            model.NodeGroupCost(
                capacity=group.capacity,
                min_nodes=group.min_nodes,
                max_nodes=group.max_nodes,
                node_hour=_range(group.node),
                at_min=_range(group.at_min),
                at_max=_range(group.at_max),
            )
            for group in pool.groups
        ],
        at_min=_range(pool.at_min),
        at_max=_range(pool.at_max),
        spot_ratio=pool.spot_ratio,
        note=pool.note,
    )


def _runner_cost(runner: cost_nodes.RunnerCost) -> model.RunnerCost:
    job, hosted = runner.job, runner.hosted
    low, typical, high = job.start_seconds
    return model.RunnerCost(
        runner=runner.runner,
        pool=runner.pool,
        per_node=dict(runner.per_node),
        per_hour=_range(runner.per_hour),
        job=model.JobCost(
            minutes=job.minutes,
            start_seconds=model.StartSeconds(low=low, typical=typical, high=high),
            idle_seconds=job.idle_seconds,
            warm=_range(job.warm),
            cold=_range(job.cold),
            alone=_range(job.alone),
        ),
        github_hosted=model.HostedCost(
            price=_money(hosted.price),
            job=_money(hosted.job),
            comparable=hosted.comparable,
            times_ours=hosted.times_ours,
        ),
    )


def _range(amounts: cost_nodes.Range) -> model.Range:
    return model.Range(low=_money(amounts.low), expected=_money(amounts.expected), high=_money(amounts.high))


def _money(amount: money.Money) -> model.Money:
    """Return an amount to a millionth of a dollar."""
    return model.Money(
        value=None if amount.value is None else round(amount.value, 6),
        unit=amount.unit,
        sources=list(amount.sources),
        as_of=_day(amount.as_of),
        missing=list(amount.missing),
    )


def _day(day: date | None) -> str | None:
    return day.isoformat() if day else None


def _right_size(size: rightsizing.RightSize) -> model.RightSize:
    return model.RightSize(
        runner=size.runner,
        pool=size.pool,
        current=_size_option(size.current),
        cheapest_in_pool=_size_option(size.cheapest_in_pool),
        cheapest=_size_option(size.cheapest),
        cheapest_any=_size_option(size.cheapest_any),
        smaller=_size_option(size.smaller),
        larger=_size_option(size.larger),
    )


@overload
def _size_option(option: options.Option) -> model.SizeOption: ...
@overload
def _size_option(option: None) -> None: ...
def _size_option(option: options.Option | None) -> model.SizeOption | None:
    return (
        None
        if option is None
        else model.SizeOption(
            instance=option.instance,
            gpu=option.gpu,
            same_gpu=option.same_gpu,
            per_node=option.per_node,
            cpu_m=option.share.cpu_m,
            memory_mib=option.share.memory_mib,
            per_runner_hour=_money(option.per_runner),
        )
    )


def _quota(need: quota.QuotaNeed) -> model.Quota:
    return model.Quota(
        code=need.code,
        service=need.service,
        name=need.name,
        unit=need.unit,
        need=need.need,
        need_without_fallback=need.without_fallback,
        default=need.default,
        shortfall=need.shortfall,
        parts=[
            model.QuotaPart(who=part.who, amount=part.amount, what=part.what, fallback=part.fallback)
            for part in need.parts
        ],
        note=need.note,
        request=need.request,
    )

"""The document of a plan, made from the plan."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import paddock
from paddock import catalog
from paddock.catalog import InstanceType
from paddock.fleet import Fleet, Runner, ServedModel, nodes
from paddock.fleet.model import pool as pools
from paddock.fleet.sizing.capacity import runner_request
from paddock.fleet.sizing.serving import worker_request
from paddock.plan import rules
from paddock.plan.cost import estimate, money
from paddock.plan.document import model
from paddock.plan.engine.values import redact
from paddock.plan.plan import Plan
from paddock.plan.serving.fit import format_of

Part = TypeVar("Part", bound=model.Model)
_ABSENT = object()
_PRICE_FILES = {"fixed_prices.json", "instance_prices.json"}


def build_document(plan: Plan, doctor: model.DoctorReading | None = None) -> model.PlanDocument:
    """Return the plan as data, with secrets hidden. `doctor` is its last reading of the account, where one is given."""
    fleet, shared = plan.stack.fleet, _Shared()
    return model.PlanDocument(
        schema_version=model.SCHEMA,
        stack=plan.stack.name,
        project=plan.stack.project,
        fleet=model.FleetSummary(name=fleet.name, region=fleet.region, kubernetes=fleet.cluster.version),
        github=model.GitHub(url=fleet.github.url),
        pools=[_pool(fleet, pool) for pool in fleet.pools.values()],
        runners=[_runner(fleet, runner) for runner in fleet.runners.values()],
        resources=[
            _copy(model.Resource, resource, inputs=redact(resource.inputs))
            for resource in plan.graph.resources.values()
        ],
        outputs=redact(plan.graph.outputs),
        lookups=[model.Lookup(token=token, arguments=redact(arguments)) for token, arguments in plan.graph.lookups],
        fit=[
            _copy(
                model.Fit,
                fit,
                memory=fit.source,
                **shared(model.Amounts, fit, "slack", "request", "available", "deficit"),
            )
            for fit in plan.fits
        ],
        served=[_served(fleet, served) for served in fleet.served],
        served_fit=[
            _copy(
                model.ServedFit,
                fit,
                gpu_memory=fit.gpu_memory_mib,
                weights=fit.weights_mib,
                cache=fit.cache_mib,
                needed=fit.needed_mib,
                allowed=fit.allowed_mib,
                lacking=fit.lacking_mib,
            )
            for fit in plan.served
        ],
        compatibility=[_copy(model.Verdict, verdict) for verdict in plan.compatibility],
        rules=_rules(plan.rules),
        cost=_cost(plan.cost, shared),
        right_size=[
            _copy(
                model.RightSize,
                size,
                **shared(
                    model.SizeOption,
                    size,
                    "current",
                    "cheapest_in_pool",
                    "cheapest",
                    "cheapest_any",
                    "smaller",
                    "larger",
                ),
            )
            for size in plan.sizes
        ],
        quota=[_copy(model.Quota, need) for need in plan.quota],
        findings=list(plan.findings),
        before_up=list(plan.before_up),
        doctor=doctor,
        planned=plan.today.isoformat(),
        paddock=paddock.__version__,
        catalog=[_copy(model.CatalogFile, stamp) for stamp in catalog.stamps()],
    )


class _Shared:
    """Parts that have been made, by what they are made of: alike runners have theirs in common."""

    def __init__(self) -> None:
        self._parts: dict[tuple[type[model.Model], int], model.Model] = {}

    def __call__(self, part: type[model.Model], source: object, *names: str) -> dict[str, model.Model | None]:
        """Return parts of one type for these attributes of `source`, which lives as long as this."""
        parts = {}
        for name in names:
            value = getattr(source, name)
            key = (part, id(value))
            if value is not None and key not in self._parts:
                self._parts[key] = part.model_validate(value, strict=False, from_attributes=True)
            parts[name] = self._parts.get(key)
        return parts


def _copy(part: type[Part], source: object, **values: Any) -> Part:
    """Return a part of the document: `values`, and the attributes of `source` by the names of its other fields."""
    copied = {
        name: value
        for name in _fields(part)
        if name not in values and (value := getattr(source, name, _ABSENT)) is not _ABSENT
    }
    return part.model_validate(copied | values, strict=False, from_attributes=True)


@functools.cache
def _fields(part: type[model.Model]) -> tuple[str, ...]:
    return tuple(part.model_fields)


def _pool(fleet: Fleet, pool: pools.GpuPool) -> model.Pool:
    match pool.capacity:
        case pools.Reserved(reserved=reservation) | pools.CapacityBlock(capacity_block=reservation):
            pass
        case _:
            reservation = ""
    return model.Pool(
        name=pool.name,
        gpu=_copy(model.Gpu, pool.gpu),
        instances=[_instance(pool, instance) for instance in pool.types],
        capacity=list(nodes.capacities(pool)) if fleet.owns_nodes else [],
        reservation=reservation,
        nodes=_copy(model.NodeCount, pool.nodes),
        zones=list(pool.zones),
        sharing=_sharing(pool),
        shares=pool.replicas,
        image=_image(fleet, pool),
    )


def _sharing(pool: pools.GpuPool) -> str:
    """Return how jobs share a GPU of the pool; empty where they do not."""
    match pool.sharing:
        case pools.TimeSlicing(time_slicing=clients):
            return f"time-slicing {clients}"
        case pools.Mps(mps=clients):
            return f"MPS {clients}"
        case pools.Mig(mig=profile):
            return f"MIG {profile}"
        case _:
            return ""


def _image(fleet: Fleet, pool: pools.GpuPool) -> str:
    """Return the node image of the pool in a word or two."""
    if not fleet.owns_nodes:
        return "as it is"
    older = "" if (minor := fleet.kubernetes(pool)) == fleet.cluster.version else f", Kubernetes {minor}"
    match fleet.ami(pool):
        case pools.EksManaged(release=release):
            return f"EKS NVIDIA {release}"
        case pools.Bottlerocket(bottlerocket=release):
            return f"Bottlerocket NVIDIA {release}{older}"
        case pools.Custom(custom=ami, driver=driver):
            return f"{ami}, driver {driver}{older}"
        case _:
            return "unknown"


def _instance(pool: pools.GpuPool, instance: InstanceType) -> model.Instance:
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
    return _copy(
        model.Runner,
        runner,
        labels=runner.effective_labels,
        cpu=request.cpu_m,
        memory=request.memory_mib,
        max=fleet.max_runners(runner),
        image=runner.image or fleet.images.runner or "",
        volumes={key: volume.mount for key, volume in runner.volumes.items()},
    )


def _served(fleet: Fleet, served: ServedModel) -> model.ServedModel:
    request = worker_request(fleet, served, fleet.pools[served.pools[0]])
    return _copy(
        model.ServedModel,
        served,
        dtype=format_of(fleet, served),
        gpus=served.tensor_parallel,
        cpu=request.cpu_m,
        memory=request.memory_mib,
        min=served.replicas.min,
        max=served.replicas.max,
        checkpoint=served.checkpoint,
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
        unseen=[_copy(model.Unseen, unseen) for unseen in evaluation.unseen],
    )


def _cost(cost: estimate.Cost, shared: _Shared) -> model.Cost:
    return _copy(
        model.Cost,
        cost,
        hours_a_month=money.HOURS_A_MONTH,
        fixed={"items": cost.fixed, "total": cost.fixed_total},
        pools=[_copy(model.PoolCost, pool, month=cost.pool_months[pool.pool]) for pool in cost.pools],
        runners=[
            _copy(
                model.RunnerCost,
                runner,
                month=cost.runner_months[runner.runner],
                **shared(model.Range, runner, "per_hour"),
                **shared(model.JobCost, runner, "job"),
                **shared(model.HostedCost, runner, "github_hosted"),
            )
            for runner in cost.runners
        ],
        month=_copy(model.Month, cost.month, jobs={name: round(count, 1) for name, count in cost.jobs.items()}),
        resources=model.PricedResources(**cost.counts, types=[_copy(model.PricedType, entry) for entry in cost.census]),
        sources={
            source.key: _copy(model.PriceSource, source)
            for stamp in catalog.stamps()
            if stamp.file in _PRICE_FILES
            for source in stamp.sources
        },
    )

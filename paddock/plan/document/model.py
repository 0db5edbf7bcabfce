"""The document of a plan: what `inv plan --json` prints, what a saved plan is read as, and what every renderer takes.

Fields that a comparison of plans needs are required. The others have defaults, because a plan that an older version
saved may lack them; a new plan has them all, and `docs/plan.schema.json` says so.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from paddock.catalog.cuda_match import Outcome
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.plan.finding import Finding, Severity, Step

SCHEMA: Final = "paddock.plan/1"
"""The number changes when a key goes or changes its meaning; new keys leave it."""

_CPU = re.compile(r"^(-?\d{1,12})(m?)$")
_MEMORY = re.compile(r"^(-?\d{1,12})(Mi|Gi)$")


def _millicores(value: Any) -> Any:
    match = _CPU.match(value) if isinstance(value, str) else None
    return int(match[1]) * (1 if match[2] else 1000) if match else value


def _mebibytes(value: Any) -> Any:
    match = _MEMORY.match(value) if isinstance(value, str) else None
    return int(match[1]) * (1 if match[2] == "Mi" else 1024) if match else value


Cpu = Annotated[
    int,
    BeforeValidator(_millicores),
    PlainSerializer(format_cpu),
    WithJsonSchema({"type": "string", "pattern": _CPU.pattern}),
]
"""Millicores; written as a Kubernetes quantity, such as `3500m`."""
Memory = Annotated[
    int,
    BeforeValidator(_mebibytes),
    PlainSerializer(format_memory),
    WithJsonSchema({"type": "string", "pattern": _MEMORY.pattern}),
]
"""MiB; written as a Kubernetes quantity, such as `12Gi`."""


Number = Annotated[int | float, WithJsonSchema({"type": "number"})]
"""A number that is written as it is: 4 and 4.0 stay apart."""
Day = Annotated[
    str,
    BeforeValidator(lambda value: value.isoformat() if isinstance(value, date) else value),
    WithJsonSchema({"type": "string", "format": "date"}),
]


class Model(BaseModel):
    """Base of all parts. Keys that a newer version added are ignored."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        populate_by_name=True,
        json_schema_serialization_defaults_required=True,
    )

    def data(self) -> dict[str, Any]:
        """Return plain data for JSON, with its keys in order."""
        return self.model_dump(by_alias=True)


class FleetSummary(Model):
    name: str = ""
    region: str = ""
    kubernetes: str = ""


class GitHub(Model):
    url: str = ""


class Gpu(Model):
    name: str = ""
    architecture: str = ""
    compute_capability: str = ""


class Instance(Model):
    """An instance type of a pool. Its GPUs are cut into `shares` that jobs request."""

    name: str
    vcpus: int = 0
    memory: Memory = 0
    gpus: int = 0
    gpu_fraction: Number = 1.0
    gpu_memory: Memory = 0
    shares: int = 0
    nvme_gb: Number = 0


class NodeCount(Model):
    min: int = 0
    max: int = 0


class Pool(Model):
    """A GPU pool. `capacity` lists the ways to buy its nodes in the order they are tried; empty where nodes exist."""

    name: str
    gpu: Gpu = Gpu()
    instances: list[Instance] = []
    capacity: list[str] = []
    reservation: str = ""
    nodes: NodeCount = NodeCount()
    zones: list[str] = []
    sharing: str = ""
    shares: int = 1
    image: str = ""


class Warm(Model):
    """A time from which `min` runners are kept ready."""

    at: str
    min: int
    time_zone: str = "UTC"


class Runner(Model):
    name: str
    scale_set: str = ""
    pool: str = ""
    labels: list[str] = []
    gpus: int = 0
    cpu: Cpu = 0
    memory: Memory = 0
    min: int = 0
    max: int = 0
    warm: list[Warm] = []
    container: str = "none"
    privileged: bool = False
    """A job can become root on its node."""
    image: str = ""
    priority: int = 0
    volumes: dict[str, str] = {}


class Resource(Model):
    """A resource of the Pulumi program. `expanded`: made by a component of a package, as its provider would make it."""

    urn: str
    type: str
    name: str
    parent: str
    custom: bool
    inputs: dict[str, Any]
    dependencies: list[str]
    property_dependencies: dict[str, list[str]] = Field(alias="propertyDependencies")
    provider: str
    protect: bool
    ignore_changes: list[str] = Field(alias="ignoreChanges")
    delete_before_replace: bool = Field(alias="deleteBeforeReplace")
    expanded: bool = False

    @property
    def exists_in_cloud(self) -> bool:
        """Return whether a provider creates it; components and providers only organise the others."""
        return self.custom and not self.type.startswith("pulumi:")


class Lookup(Model):
    """A question that the program puts to the cloud while it runs."""

    token: str
    arguments: dict[str, Any] = {}


class Amounts(Model):
    """Resources that a pod requests or a node offers."""

    cpu: Cpu = Field(0, validation_alias=AliasChoices("cpu", "cpu_m"))
    memory: Memory = Field(0, validation_alias=AliasChoices("memory", "memory_mib"))
    gpus: int = 0
    pods: int = 0
    ephemeral_storage: Memory = Field(0, validation_alias=AliasChoices("ephemeral_storage", "ephemeral_mib"))


class Fit(Model):
    """A runner on an instance type of its pool. `memory`: whether the node's memory was measured or estimated."""

    runner: str
    pool: str
    instance: str
    per_node: int
    limiting: str
    slack: Amounts = Amounts()
    stranded_gpus: Number = 0.0
    request: Amounts = Amounts()
    available: Amounts = Amounts()
    deficit: Amounts = Amounts()
    memory: str = ""
    cautious_per_node: int = 0


class ServedModel(Model):
    """A model that is served on the pools. `cpu` and `memory` are those of a replica's pod on the first of them."""

    name: str
    model: str = ""
    dtype: str = ""
    pools: list[str] = []
    gpus: int = 0
    cpu: Cpu = 0
    memory: Memory = 0
    min: int = 0
    max: int = 0
    context: int = 0
    concurrency: int = 0
    mode: str = ""
    checkpoint: str = ""


class ServedFit(Model):
    """A served model on an instance type of a pool: replicas a node, and memory on each of its GPUs."""

    model: str
    pool: str
    instance: str
    per_node: int
    limiting: str
    request: Amounts = Amounts()
    available: Amounts = Amounts()
    gpu_memory: Memory = 0
    weights: Memory = 0
    cache: Memory = 0
    needed: Memory = 0
    allowed: Memory = 0
    lacking: Memory = 0


class Verdict(Model):
    """A compatibility check, with the facts that it compared."""

    id: str
    subject: str
    verdict: Outcome
    message: str
    numbers: dict[str, str | int | None] = {}
    fix: str = ""


class EvaluatedRule(Model):
    id: str
    title: str = ""


class Suppressed(Model):
    rule: str
    resource: str
    reason: str
    expires: Day


class Unseen(Model):
    """A property that a rule could not judge, because only the cloud knows its value."""

    rule: str
    subject: str
    property: str


class Rules(Model):
    evaluated: list[EvaluatedRule] = []
    suppressed: list[Suppressed] = []
    unseen: list[Unseen] = []


class Money(Model):
    """An amount. `value` is a lower bound where prices are `missing`, and null where nothing is known."""

    value: Annotated[
        Number | None, BeforeValidator(lambda value: round(value, 6) if isinstance(value, float) else value)
    ]
    unit: str
    sources: list[str] = []
    as_of: Day | None = None
    missing: list[str] = []


class Range(Model):
    low: Money
    expected: Money
    high: Money


class Month(Range):
    jobs: dict[str, Number] = {}


class CostLine(Model):
    item: str
    quantity: Number | None = None
    what: str = ""
    price: Money
    monthly: Money
    note: str = ""


class FixedCost(Model):
    items: list[CostLine] = []
    total: Money


class Offer(Model):
    """An instance type of a pool, bought one way."""

    instance: str
    capacity: str
    instance_hour: Money
    volume_hour: Money
    node_hour: Money


class NodeGroupCost(Model):
    capacity: str
    min_nodes: int
    max_nodes: int
    node_hour: Range
    at_min: Range
    at_max: Range


class PoolCost(Model):
    """A pool's nodes an hour. `month`: its part of the month; null in plans of older versions."""

    pool: str
    offers: list[Offer] = []
    groups: list[NodeGroupCost] = []
    at_min: Range
    at_max: Range
    month: Range | None = None
    spot_ratio: Number | None = None
    note: str = ""


class StartSeconds(Model):
    low: Number
    typical: Number
    high: Number


class JobCost(Model):
    minutes: Number
    start_seconds: StartSeconds
    idle_seconds: Number
    warm: Range
    cold: Range
    alone: Range


class HostedCost(Model):
    """The same job on GitHub's own runner. `comparable`: both have the same GPU."""

    price: Money
    job: Money
    comparable: bool
    times_ours: Number | None = None


class RunnerCost(Model):
    """A runner an hour, and a job of it. `month`: its jobs as expected; null in plans of older versions."""

    runner: str
    pool: str
    per_node: dict[str, int] = {}
    per_hour: Range
    month: Money | None = None
    job: JobCost
    github_hosted: HostedCost


class ServedCost(Model):
    """A replica an hour, and a month of the fewest and of the most replicas."""

    model: str
    replica_hour: Range
    idle_month: Range
    most_month: Range


class PricedType(Model):
    type: str
    count: int
    kind: Literal["priced", "free", "unpriced"]
    why: str = ""
    names: list[str] = []


class PricedResources(Model):
    """Resources by what is known of their price."""

    priced: int = 0
    free: int = 0
    unpriced: int = 0
    types: list[PricedType] = []


class PriceSource(Model):
    name: str = ""
    url: str = ""
    as_of: Day | None = None


class Cost(Model):
    region: str = ""
    currency: str = "USD"
    hours_a_month: int = 730
    fixed: FixedCost
    by_use: list[CostLine] = []
    pools: list[PoolCost] = []
    runners: list[RunnerCost] = []
    served: list[ServedCost] = []
    month: Month
    assumptions: list[str] = []
    resources: PricedResources = PricedResources()
    missing: list[str] = []
    sources: dict[str, PriceSource] = {}


class SizeOption(Model):
    """A runner on nodes of one instance type."""

    instance: str
    gpu: str = ""
    same_gpu: bool = True
    per_node: int
    cpu_m: int
    memory_mib: int
    per_runner_hour: Money


class RightSize(Model):
    """A runner on its pool's first type, and on others: cheaper, one size up, one size down."""

    runner: str
    pool: str = ""
    current: SizeOption
    cheapest_in_pool: SizeOption | None = None
    cheapest: SizeOption | None = None
    cheapest_any: SizeOption | None = None
    smaller: SizeOption | None = None
    larger: SizeOption | None = None


class QuotaPart(Model):
    who: str
    amount: Number
    what: str = ""
    fallback: bool = False


class Quota(Model):
    """Need of the fleet at its largest, compared with the default of a new account."""

    code: str | None = None
    service: str = ""
    name: str
    unit: str = ""
    need: Number
    need_without_fallback: Number = 0
    default: Number | None = None
    shortfall: Number = 0
    parts: list[QuotaPart] = []
    note: str = ""
    request: str = ""


class DoctorLine(Model):
    """A line of the doctor. `permission`: what the credentials lack, where that is why the answer is unknown.

    `checks`: how many of its lines say the same, for which this one stands.
    """

    status: Literal["pass", "warn", "fail", "unknown"]
    area: str = ""
    subject: str = ""
    message: str
    fix: str = ""
    permission: str = ""
    checks: int = 1

    @property
    def severity(self) -> Severity:
        """Level of a finding that fails a plan as this line does."""
        return "error" if self.status == "fail" else "info" if self.status == "pass" else "warning"

    @property
    def sentence(self) -> str:
        return f"{self.subject}: {self.message}" if self.subject else self.message


class DoctorReading(Model):
    """Obstacles to `pulumi up`, as the doctor last read them: lines that do not pass, `days` before this plan."""

    at: Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
    account: str | None = None
    days: int = 0
    passed: int = 0
    results: list[DoctorLine] = []

    @property
    def counts(self) -> Counter[str]:
        """Lines of the doctor by status, those that one line stands for too."""
        counted: Counter[str] = Counter()
        for line in self.results:
            counted[line.status] += line.checks
        return counted


class CatalogSource(Model):
    name: str = ""
    url: str = ""


class CatalogFile(Model):
    """A file of facts that the plan rests on."""

    file: str
    as_of: Day = ""
    max_age_days: int = 0
    sources: list[CatalogSource] = []


class PlanDocument(Model):
    """Everything that a plan says. `fit`, `cost`, `quota` and `findings` are what `inv plan` prints."""

    schema_version: Literal["paddock.plan/1"] = Field(alias="schema")
    stack: str
    project: str
    fleet: FleetSummary = FleetSummary()
    github: GitHub = GitHub()
    pools: list[Pool] = []
    runners: list[Runner] = []
    resources: list[Resource]
    outputs: dict[str, Any]
    lookups: list[Lookup] = []
    fit: list[Fit]
    served: list[ServedModel] = []
    served_fit: list[ServedFit] = []
    compatibility: list[Verdict] = []
    rules: Rules | None = None
    cost: Cost | None = None
    right_size: list[RightSize] = []
    quota: list[Quota] = []
    findings: list[Finding]
    before_up: list[Step] = []
    doctor: DoctorReading | None = None
    planned: Day = ""
    paddock: str = ""
    catalog: list[CatalogFile] = []

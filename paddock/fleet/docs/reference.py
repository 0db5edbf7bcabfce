"""Writes `docs/configuration.md` from the model: the same descriptions, bounds and defaults that the loader uses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from paddock import catalog
from paddock.fleet.docs import json_schema
from paddock.fleet.docs.introduction import INTRODUCTION
from paddock.fleet.model import cluster, github, images, logs, mirror, monitoring, network, pool, runner, serving
from paddock.fleet.model.fleet import Fleet, Layers
from paddock.fleet.sizing.addresses import RESERVED_ADDRESSES
from paddock.terminal import update

PATH = "docs/configuration.md"

_SECTIONS: list[tuple[str, str, str, list[type[BaseModel]]]] = [
    ("Fleet", "paddock:fleet", "", [Fleet]),
    ("GitHub", "github", "", [github.GitHub, github.GitHubApp]),
    (
        "Network",
        "network",
        "One of two forms.",
        [network.NewNetwork, network.ExistingNetwork, network.AdoptedNetwork, network.Egress],
    ),
    (
        "Cluster",
        "cluster",
        "One of three forms, distinguished by `existing` and `kubeconfig`.",
        [
            cluster.NewCluster,
            cluster.ExistingCluster,
            cluster.KubeconfigCluster,
            cluster.Endpoint,
            cluster.Access,
            cluster.SystemNodes,
        ],
    ),
    (
        "Pools",
        "pools.NAME",
        "",
        [
            pool.GpuPool,
            cluster.Scale,
            pool.Reserved,
            pool.CapacityBlock,
            pool.TimeSlicing,
            pool.Mps,
            pool.Mig,
            pool.EksManaged,
            pool.Bottlerocket,
            pool.Custom,
            pool.Disk,
            pool.Update,
        ],
    ),
    ("Runners", "runners.NAME", "", [runner.Runner, runner.Warm, runner.Scratch, runner.Claim, runner.Volume]),
    (
        "Serving",
        "serving",
        "",
        [serving.Serving, serving.ServedModel, serving.Replicas, serving.Redis, serving.ServingLimits, serving.Head],
    ),
    ("Images", "images", "", [images.Images, images.Push, images.AmiBuild]),
    ("Monitoring", "monitoring", "", [monitoring.Monitoring, monitoring.Prometheus, monitoring.CloudWatch]),
    ("Logs", "logs", "", [logs.Logs, logs.JobLogs]),
    ("Mirror", "mirror", "", [mirror.Mirror]),
    ("Layers", "layers", "", [Layers]),
]

_PLACES: dict[str, str] = {
    "GitHubApp": "github.app",
    "NewNetwork": "network, made here",
    "ExistingNetwork": "network, adopted",
    "AdoptedNetwork": "network.existing",
    "NewCluster": "cluster, made here",
    "ExistingCluster": "cluster, adopted",
    "KubeconfigCluster": "cluster, by kubeconfig",
    "Egress": "network.egress",
    "Endpoint": "cluster.endpoint",
    "JobLogs": "logs.jobs",
    "Prometheus": "monitoring.prometheus",
    "CloudWatch": "monitoring.cloudwatch",
    "Access": "cluster.access.NAME",
    "SystemNodes": "cluster.system",
    "Scale": "pools.NAME.nodes",
    "Reserved": "pools.NAME.capacity, reserved",
    "CapacityBlock": "pools.NAME.capacity, in a Capacity Block",
    "TimeSlicing": "pools.NAME.sharing, in turns",
    "Mps": "pools.NAME.sharing, by MPS",
    "Mig": "pools.NAME.sharing, by MIG",
    "EksManaged": "pools.NAME.ami, Amazon's",
    "Bottlerocket": "pools.NAME.ami, Bottlerocket",
    "Custom": "pools.NAME.ami, your own",
    "Disk": "pools.NAME.disk",
    "Update": "pools.NAME.update",
    "Warm": "runners.NAME.warm[]",
    "Scratch": "runners.NAME.volumes.NAME, scratch",
    "Claim": "runners.NAME.volumes.NAME, a claim",
    "Volume": "runners.NAME.volumes.NAME, an EBS volume",
    "ServedModel": "serving.models.NAME",
    "Replicas": "serving.models.NAME.replicas",
    "Redis": "serving.redis",
    "ServingLimits": "serving.limits",
    "Head": "serving.head",
    "Push": "images.push",
    "AmiBuild": "images.ami",
}

_NOTES: dict[str, str] = {
    "Network": f"""\
A VPC made here is cut so that no subnet moves when a zone comes or goes: the place of a zone follows from its letter.
In a /16 the first three letters of a region get a /18 each for nodes, the next three a /20 each in the last quarter,
and the ranges of NAT gateways lie at its end. Below a /21 there is room for three. A stack that an earlier version of
Paddock laid out for two zones, four zones or more, or letters that are not the region's first, keeps its ranges when
they are written into `privateSubnets` and `publicSubnets`; `./inv plan --against` says which.

EKS never changes the zones of a control plane. To add a zone, write those of today into `cluster.zones` and the new one
into `network.zones`: it gets nodes alone. A zone of the control plane stays; pools leave it with `pools.NAME.zones`.

The private subnets must hold every node and pod at maximum, because each pod has an address of
the VPC:

```text
sum of (addresses - {RESERVED_ADDRESSES}) over private subnets
    >= sum of nodes.max x (pods a node + 1) over pools and system nodes
```

AWS keeps {RESERVED_ADDRESSES} addresses of every subnet. On-demand fallback buys instead of spot, not on top
of it, so `nodes.max` counts once. Pods a node are `maxPods`, and for system nodes what their type can address.
""",
    "Pools": """\
A pool with `fallback` is two node groups. Its `nodes.min` nodes are kept once, on spot. Each group may grow to
`nodes.max`, and a quota on the runners' GPUs keeps the jobs of all pools to one `nodes.max` a pool.
""",
    "Runners": """\
A job gets a runner whose labels include all that its `runs-on` asks for: a label that two runners share may lead a job
to either, of which `./inv plan` warns where they differ in size or pool. CPU and memory default to the runner's share,
by GPUs, of the smallest instance type of its pool; `./inv plan` shows them.
""",
    "Layers": """\
A stack holds all three layers unless it says otherwise. Teams that must not wait for each other split them: one stack
with `{images: here, cluster: here, runners: none}`, and one a team with
`{images: none, cluster: acme/paddock/shared, runners: here}`.
""",
}


def write(root: Path) -> list[Path]:
    """Writes the reference and the JSON Schema under `root`, and returns their paths. Raises OutputError."""
    contents = {root / PATH: render(), root / json_schema.PATH: json_schema.text()}
    for path, text in contents.items():
        update(path, text)
    return list(contents)


def render() -> str:
    """The whole of `docs/configuration.md`."""
    return "\n".join([INTRODUCTION, *_sections()]).rstrip() + "\n"


def _sections() -> Iterator[str]:
    described = json_schema.stack_schema()["$defs"]
    for title, key, lead, models in _SECTIONS:
        yield f"## {title}\n"
        yield f"`{key}`: {lead or models[0].__doc__}\n"
        if note := _NOTES.get(title):
            yield note
        for model in models:
            if place := _PLACES.get(model.__name__):
                yield f"### {place}\n"
                yield f"{model.__doc__}\n"
            yield _table(model, described[model.__name__]) if len(model.model_fields) > 1 else _line(model)


def _table(model: type[BaseModel], described: dict[str, Any]) -> str:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        key = field.alias or name
        shape = described["properties"][key]
        kind, meaning = _type(shape), _cell(str(field.description or ""))
        required = key in described.get("required", ())
        rows.append(f"| `{key}` | {kind} | {'**required**' if required else _default(field)} | {meaning} |")
    return "\n".join(rows) + "\n"


def _line(model: type[BaseModel]) -> str:
    """The one setting of a small form."""
    name, field = next(iter(model.model_fields.items()))
    form = _FORMS.get(model.__name__, field.alias or name)
    return f"`{form}`: {_cell(str(field.description))}\n"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if field.is_required() or value is None or isinstance(value, BaseModel):
        return ""
    if isinstance(value, tuple | dict) and not value:
        return ""
    metadata = field.metadata
    for item in metadata:
        if hasattr(item, "func") and item.func.__name__.startswith("format_"):
            value = item.func(value)
    text = value if isinstance(value, str) else json.dumps(value)
    quoted = f'"{text}"' if isinstance(value, str) and re.fullmatch(r"[\d.]+", text) else text.replace('"', "")
    return f"`{quoted}`"


def _type(shape: dict[str, Any]) -> str:
    """A JSON Schema as a reader of YAML would say it."""
    if "$ref" in shape:
        return _link(shape["$ref"].rsplit("/", 1)[1])
    if "exclusiveMinimum" in json.dumps(shape):
        return "cores or millicores, `3`, `3500m`"
    for combined in ("anyOf", "oneOf"):
        if combined in shape:
            forms = [_type(form) for form in shape[combined] if form.get("type") != "null"]
            return " or ".join(dict.fromkeys(forms))
    if "const" in shape:
        return f"`{shape['const']}`"
    if "enum" in shape:
        words = shape["enum"]
        if words and words[0] in catalog.instances():
            return "instance type"
        return ", ".join(f"`{word}`" for word in words)
    match shape.get("type"):
        case "array":
            return f"list of {_type(shape['items'])}".replace("range,", "ranges,").replace("type", "types")
        case "object":
            inner = next(iter(shape.get("patternProperties", {}).values()), shape.get("additionalProperties"))
            return f"NAME: {_type(inner)}" if isinstance(inner, dict) else "map"
        case "integer":
            return _bounded(shape)
        case "number":
            return "number"
        case "boolean":
            return "`true`, `false`"
        case _ if "Ki|Mi|Gi" in shape.get("pattern", ""):
            return "amount, `12Gi`"
        case _ if "10m" in shape.get("examples", ()):
            return "time, `10m`, `1h`"
        case _ if "examples" in shape:
            return f"IPv4 range, `{shape['examples'][0]}`"
        case _ if shape.get("pattern") == r"^\d+\.\d+$":
            return "version in quotes"
        case _:
            return "text"


def _bounded(shape: dict[str, Any]) -> str:
    least, most = shape.get("minimum"), shape.get("maximum")
    if least is not None and most is not None:
        return f"{least} to {most}"
    return f"number, {least} or more" if least is not None else "number"


_FORMS = {
    "Reserved": "{reserved: cr-...}",
    "CapacityBlock": "{capacityBlock: cr-...}",
    "TimeSlicing": "{timeSlicing: N}",
    "Mps": "{mps: N}",
    "Mig": "{mig: PROFILE}",
    "EksManaged": "{release: ...}",
    "Bottlerocket": "{bottlerocket: ...}",
    "Custom": "{custom: ami-..., driver: ..., kubernetes: ...}",
    "Scratch": "{scratch: SIZE, mount: PATH}",
    "Claim": "{claim: NAME, mount: PATH}",
    "Volume": "{volume: SIZE, mount: PATH}",
    "ExistingNetwork": "{existing: ...}",
    "ExistingCluster": "{existing: NAME}",
    "KubeconfigCluster": "{kubeconfig: PATH}",
    "Scale": "{min: N, max: N}",
}
"""Small parts as a user writes them."""

_TITLES = {
    "GitHub": "github",
    "GpuPool": "pools",
    "Runner": "runners",
    "Serving": "serving",
    "Images": "images",
    "Monitoring": "monitoring",
    "Logs": "logs",
    "Mirror": "mirror",
    "Layers": "layers",
}


def _link(name: str) -> str:
    if name in _FORMS:
        return f"[`{_FORMS[name]}`](#{_anchor(_PLACES[name])})"
    place = _PLACES.get(name)
    return f"[{place}](#{_anchor(place)})" if place else f"[{_TITLES[name]}](#{_TITLES[name]})"


def _anchor(heading: str) -> str:
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

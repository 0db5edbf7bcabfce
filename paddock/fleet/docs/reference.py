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
from paddock.fleet.model import cluster, github, images, mirror, monitoring, network, pool, runner
from paddock.fleet.model.fleet import Fleet, Layers
from paddock.fleet.sizing.addresses import RESERVED_ADDRESSES
from paddock.fleet.stackfile import yaml_document

PATH = "docs/configuration.md"

EXAMPLE = """\
# yaml-language-server: $schema=docs/fleet.schema.json
config:
  aws:region: us-west-2

  # The credential is never part of the fleet. This adds it below, encrypted, so that the file can be committed:
  #   pulumi config set --secret paddock:githubAppKey < app.private-key.pem

  paddock:fleet:
    github:
      url: https://github.com/acme              # an organisation, a repository or an enterprise
      app: {id: "12345", installation: "678"}   # IDs in quotes
      runnerGroup: gpu                          # must exist already

    network:                                    # leave out for 10.0.0.0/16 in three zones
      zones: [us-west-2a, us-west-2b]
      nat: per-zone                             # survives the loss of a zone
      endpoints: [ecr.api, ecr.dkr]             # images do not cross the NAT gateway

    cluster:
      version: "1.35"                           # in quotes: 1.30 would be the number 1.3
      endpoint: {allow: [203.0.113.0/24]}       # who reaches the Kubernetes API; nobody by default
      access:
        platform: {principal: "arn:aws:iam::123456789012:role/Platform", policy: cluster-admin}

    pools:                                      # nodes of one GPU model each
      t4:
        instances: [g4dn.xlarge, g4dn.2xlarge]  # several, because spot wants choice
        capacity: spot
        fallback: on-demand                     # bought when there is no spot
        nodes: {max: 10}                        # both together; none while no job waits
      l4:
        instances: [g6.xlarge, g6.2xlarge]
        nodes: {max: 4}
        sharing: {timeSlicing: 4}               # four small jobs a GPU
      h100:
        instances: [p5.48xlarge]
        capacity: {capacityBlock: cr-0123456789abcdef0}
        zones: [us-west-2b]                     # a reservation is in one zone
        nodes: {max: 1}

    runners:                                    # scale sets: what `runs-on` asks for
      gpu:
        pool: t4
        labels: [self-hosted, linux, x64, gpu, cuda]
        max: 10
        warm:                                   # two idle runners in working hours
          - {at: "0 8 * * 1-5", min: 2, timeZone: America/Los_Angeles}
          - {at: "0 19 * * 1-5", min: 0, timeZone: America/Los_Angeles}
      gpu-small: {pool: l4, gpus: 1}            # one share; labels: self-hosted, linux, x64, gpu-small
      gpu-h100-x8:
        pool: h100
        gpus: 8
        container: kubernetes-novolume          # jobs with `container:` get a pod of their own
        volumes:
          models: {claim: model-cache, mount: /models, readOnly: true}

    monitoring: {enabled: true}
    tags: {team: ml-platform}
"""

_INTRO = f"""\
<!-- Generated from paddock/fleet by `inv schema --write`. Change the model, not this file. -->

# Configuration

A stack is one file, `Pulumi.<stack>.yaml`, beside `Pulumi.yaml`. Its key `paddock:fleet` says what the fleet is; all
else (taints, tolerations, node labels, launch templates, scale-from-zero tags, CPU and memory of a runner) is derived.
`./inv plan --stack <stack>` checks the file and shows what it would become, without credentials and without a network.

```yaml
{EXAMPLE}```

Only `github`, `pools` and a region must be written: see `Pulumi.dev.yaml` for about the least, `Pulumi.prod.yaml` for
more.

## Rules of the file

- Keys are camelCase. A key that Paddock does not know is an error, with the nearest one it does know.
- Values are read as Pulumi's engine reads them, which is not as every YAML tool does: `yes` and `on` are text,
  `1.30` is the number 1.3, `017` is 15. Versions, IDs and dates need quotes; where they are missing you are told.
- Memory and disk carry a unit (`12Gi`, `512Mi`); CPU is cores (`3`, `2.5`) or millicores (`3500m`).
- Networks are IPv4, in canonical form (`203.0.113.0/24`, not `203.0.113.4/24`).
- Anchors, aliases and merge keys (`<<`) work. The file has at most {yaml_document.MAX_BYTES // 1024} KiB.
- All mistakes are listed at once in the order of the file, each with line, key, what was expected and a fix; those
  between parts (a runner on a pool that is not there) once every part is well-formed. Exit code 2; nothing is changed.

## Other keys under `config`

| key | meaning |
|---|---|
| `aws:region` | AWS region; required, unless the fleet has `region` |
| `paddock:layers` | [Layers](#layers) of this stack, for those who keep them apart from the fleet |
| `paddock:suppressions` | exceptions from the plan's rules, a list of `{{rule, resource, reason, expires}}` |
| `paddock:githubAppKey` | private key of the GitHub App, encrypted |
| `paddock:githubToken` | personal access token, encrypted |

Keys of other namespaces (`aws:profile`, `kubernetes:...`) go to Pulumi's providers. Values under `config:` of
`Pulumi.yaml` hold for every stack that does not write its own.

**Where the credential is.** `github.app.key` and `github.token` name a place, never the credential: `config` (the
encrypted key above), the ARN of a Secrets Manager secret in the fleet's region, or `kubernetes:NAME` for a secret that
is already in the runners' namespace. The encrypted keys are written by

```sh
pulumi config set --secret paddock:githubAppKey < app.private-key.pem
pulumi config set --secret paddock:githubToken
```

A private key or a GitHub token in clear text anywhere in the file is refused, and the message does not repeat it.

## In an editor

`{json_schema.PATH}` is the JSON Schema of a stack file: completion, descriptions and checks while you type. With
the YAML language server (VS Code, Neovim, Emacs, Helix), put this in the first line of the stack file, or map the
schema to `Pulumi.*.yaml` in the editor's settings:

```yaml
# yaml-language-server: $schema=docs/fleet.schema.json
```

The schema knows shapes, names and bounds; what holds between the parts, and what depends on the day, only `./inv plan`
checks. A schema validator that reads YAML 1.1 takes `yes` for true; Pulumi and Paddock do not.
"""

_SECTIONS: list[tuple[str, str, str, list[type[BaseModel]]]] = [
    ("Fleet", "paddock:fleet", "", [Fleet]),
    ("GitHub", "github", "", [github.GitHub, github.GitHubApp]),
    ("Network", "network", "One of two forms.", [network.NewNetwork, network.ExistingNetwork, network.AdoptedNetwork]),
    (
        "Cluster",
        "cluster",
        "One of three forms, told apart by `existing` and `kubeconfig`.",
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
    ("Images", "images", "", [images.Images, images.Push, images.AmiBuild]),
    ("Monitoring", "monitoring", "", [monitoring.Monitoring]),
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
    "Endpoint": "cluster.endpoint",
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
    "Push": "images.push",
    "AmiBuild": "images.ami",
}

_NOTES: dict[str, str] = {
    "Network": f"""\
A VPC made here is cut into quarters (eighths for four zones and more): each zone's nodes get one, NAT gateways a /26
each at the very end. The private subnets must hold every node and pod at maximum, because each pod has an address of
the VPC:

```text
sum of (addresses - {RESERVED_ADDRESSES}) over private subnets
    >= sum of nodes.max x (pods a node + 1) over pools and system nodes
```

AWS keeps {RESERVED_ADDRESSES} addresses of every subnet. On-demand fallback buys instead of spot, not on top
of it, so `nodes.max` counts once. Pods a node are `maxPods`, and for system nodes what their type can address.
""",
    "Runners": """\
A job gets a runner whose labels include all that its `runs-on` asks for. CPU and memory default to the runner's share,
by GPUs, of the smallest instance type of its pool; `./inv plan` shows them.
""",
    "Layers": """\
A stack holds all three layers unless it says otherwise. Teams that must not wait for each other split them: one stack
with `{images: here, cluster: here, runners: none}`, and one a team with
`{images: none, cluster: acme/paddock/shared, runners: here}`.
""",
}


def write(root: Path) -> list[Path]:
    """Writes the reference and the JSON Schema under `root`, and returns their paths."""
    contents = {root / PATH: render(), root / json_schema.PATH: json_schema.text()}
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(contents)


def render() -> str:
    """The whole of `docs/configuration.md`."""
    return "\n".join([_INTRO, *_sections()]).rstrip() + "\n"


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
    "Images": "images",
    "Monitoring": "monitoring",
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

"""The fleet's program as a Terraform configuration: what it passes from one resource to another stays a reference.

The program runs with markers where a cloud would answer. They travel through its policies, user data and lists, and
whatever comes out with one in it refers to the resource that the marker was given for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from paddock.fleet import Stack
from paddock.plan.engine import fake_cloud
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.values import UNKNOWN, Secret
from tests.support.terraform_names import Argument, Block, snake
from tests.support.terraform_plan import terraform_type

AWS_PROVIDER = "pulumi:providers:aws"
_MARKER = re.compile(r"@\{(\d+)\}@")
_AUTO_NAMED = {"aws_cloudwatch_metric_alarm": "alarm_name", "aws_eks_node_group": "node_group_name"}
"""Arguments other than `name` that the bridge fills in where a resource leaves them out, or calls `name`."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """An output of a resource, or a field of what a lookup found."""

    block: str
    """`type.name`, or `data.type.name`."""
    path: Path


@dataclass(slots=True)
class Markers:
    """Answers to the program in a cloud's place, each a mark of where it came from. Shapes are those of a plan's."""

    references: list[Reference] = field(default_factory=list)
    lookups: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Address -> type of the data source, and its arguments."""

    def resource_id(self, type_: str, name: str) -> str:
        if not _of_aws(type_):
            return fake_cloud.resource_id(type_, name)
        return str(self._marked("id", Reference(address(type_, name), ("id",))))

    def outputs(self, type_: str, name: str, inputs: Mapping[str, Any], account: str) -> Mapping[str, Any]:
        shape = fake_cloud.outputs(type_, name, inputs, account)
        return self._marked(shape, Reference(address(type_, name), ())) if _of_aws(type_) else shape

    def lookup(self, token: str, arguments: Mapping[str, Any], account: str) -> Mapping[str, Any] | None:
        shape = fake_cloud.lookup(token, arguments, account)
        # The program computes with the ranges of a VPC, and what charts hold is no concern of Terraform.
        if shape is None or token == "aws:ec2/getVpc:getVpc" or not token.startswith("aws:"):
            return shape
        type_ = terraform_type(re.sub(r"(?<=[/:])get(?=[A-Z])", "", token))
        at = f"data.{type_}.asked-{_digest(token, json.dumps(arguments, sort_keys=True))}"
        self.lookups[at] = (type_, arguments)
        marked: Mapping[str, Any] = self._marked(shape, Reference(at, ()))
        return marked

    def _marked(self, shape: Any, at: Reference) -> Any:
        match shape:
            case Mapping():
                return {key: self._marked(item, Reference(at.block, (*at.path, key))) for key, item in shape.items()}
            case list():
                return [self._marked(item, Reference(at.block, (*at.path, i))) for i, item in enumerate(shape)]
            case Secret(value=inner):
                return Secret(self._marked(inner, at))
            case _ if shape == UNKNOWN:
                return shape
            case _:
                self.references.append(at)
                return f"@{{{len(self.references) - 1}}}@"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A Terraform configuration, and what of the program it could not say."""

    document: Mapping[str, Any]
    unsaid: tuple[str, ...]
    """`type.argument` that the program sets and the provider's schema does not know, sorted."""
    names: Mapping[str, str]
    """Address -> URN."""


def configuration(stack: Stack, schema: Mapping[str, Any]) -> Configuration:
    """All AWS resources, lookups and the provider of `stack`, for a provider with this schema."""
    markers = Markers()
    return write(markers, schema, plan_graph(stack, answers=markers))


def write(markers: Markers, schema: Mapping[str, Any], graph: Graph) -> Configuration:
    """Return the graph that a program made with these markers."""
    return _Writer(markers, schema, graph).write()


def address(type_: str, name: str) -> str:
    """Terraform's address of a Pulumi resource: its names know no dots and slashes, so what has them gets a digest."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if plain != name:
        plain = f"{plain}-{_digest(name)}"
    return f"{terraform_type(type_)}.{plain}"


def without(document: Mapping[str, Any], types: Collection[str]) -> dict[str, Any]:
    """Return the configuration without all resources of these types and those that refer to one."""
    remaining = {
        type_: {name: less for name, body in named.items() if not _refers(less := _less(body, types), types)}
        for type_, named in document["resource"].items()
        if type_ not in types
    }
    return {**document, "resource": remaining}


def _less(body: Mapping[str, Any], types: Collection[str]) -> dict[str, Any]:
    waits = [at for at in body.get("depends_on", ()) if at.split(".")[0] not in types]
    return {**body, "depends_on": waits} if "depends_on" in body else dict(body)


def _refers(body: Mapping[str, Any], types: Collection[str]) -> bool:
    return re.search(rf"\$\{{({'|'.join(types)})\.", json.dumps(body)) is not None


def _of_aws(type_: str) -> bool:
    return type_.startswith("aws:")


def _digest(*parts: str) -> str:
    """Seven hexadecimal digits, as many as Pulumi adds to a name."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:7]


class _Writer:
    def __init__(self, markers: Markers, schema: Mapping[str, Any], graph: Graph) -> None:
        self.markers, self.schema = markers, schema
        self.resources = {
            urn: resource for urn, resource in graph.resources.items() if resource.custom and _of_aws(resource.type)
        }
        self.provider = next(resource for resource in graph.resources.values() if resource.type == AWS_PROVIDER)
        self.blocks: dict[tuple[str, str], Block] = {}
        self.unsaid: set[str] = set()
        self.used: set[str] = set()
        """Blocks that the resource now being written refers to."""

    def write(self) -> Configuration:
        created: dict[str, dict[str, Any]] = {}
        names: dict[str, str] = {}
        for urn, resource in self.resources.items():
            at = address(resource.type, resource.name)
            if at in names:
                raise ValueError(f"{urn} and {names[at]} would both be {at}")
            names[at] = urn
            type_, name = at.split(".")
            created.setdefault(type_, {})[name] = self._resource(resource, type_)
        lookups: dict[str, dict[str, Any]] = {}
        for at, (type_, arguments) in self.markers.lookups.items():
            block = self._schema("data_source_schemas", type_)
            lookups.setdefault(type_, {})[at.split(".")[2]] = self._block(arguments, block, type_)
        document = {
            "terraform": {"required_providers": {"aws": {"source": "hashicorp/aws"}}},
            "provider": {"aws": self._provider()},
            **({"resource": created} if created else {}),  # Terraform refuses empty ones
            **({"data": lookups} if lookups else {}),
        }
        return Configuration(document, tuple(sorted(self.unsaid)), names)

    def _provider(self) -> dict[str, Any]:
        # A provider's nested arguments travel as JSON in a string.
        inputs = {
            key: json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
            for key, value in self.provider.inputs.items()
            if key != "version"
        }
        return self._block(inputs, Block.of(self.schema["provider"]["block"]), "provider")

    def _schema(self, kind: str, type_: str) -> Block:
        if (kind, type_) not in self.blocks:
            self.blocks[kind, type_] = Block.of(self.schema[kind][type_]["block"])
        return self.blocks[kind, type_]

    def _resource(self, resource: Resource, type_: str) -> dict[str, Any]:
        self.used = set()
        block = self._schema("resource_schemas", type_)
        own = _AUTO_NAMED.get(type_, "name")
        inputs = {own if key == "name" else key: value for key, value in resource.inputs.items()}
        body = self._block(inputs, block, type_)
        if own in block.arguments and block.arguments[own].writable and own not in body:
            body[own] = f"{resource.name}-{_digest(resource.type, resource.name)}"
        behind = {
            address(dependency.type, dependency.name)
            for urn in resource.dependencies
            if (dependency := self.resources.get(urn))
        }
        if explicit := sorted(behind - self.used):
            body["depends_on"] = explicit
        ignored = [
            path for ignored in resource.ignore_changes if (path := _attribute_path(tuple(ignored.split(".")), block))
        ]
        if ignored:
            body["lifecycle"] = {"ignore_changes": ignored}
        return body

    def _block(self, inputs: Mapping[str, Any], block: Block, where: str) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for key, value in inputs.items():
            argument = block.find(key)
            if value is None:
                continue
            if argument is None or not argument.writable:
                self.unsaid.add(f"{where}.{snake(key)}")
                continue
            arguments[argument.name] = self._value(value, argument, f"{where}.{argument.name}")
        return arguments

    def _value(self, value: Any, argument: Argument, where: str) -> Any:
        if isinstance(value, Secret):
            value = value.value
        match argument.block, value:
            case Block() as block, list() | tuple():
                return [self._object(item, block, argument, where) for item in value]
            case Block() as block, Mapping():
                return [self._object(value, block, argument, where)]
            case None, list() | tuple():
                return [self._plain(item) for item in value]
            case None, _ if argument.type[0] in ("list", "set"):
                return [self._plain(value)]
            case _:
                return self._plain(value)

    def _object(self, value: Mapping[str, Any], block: Block, argument: Argument, where: str) -> dict[str, Any]:
        body = self._block(value, block, where)
        # In an attribute that is a list of objects every field must stand; in a block only what is set.
        return body if argument.type is None else {**dict.fromkeys(block.arguments), **body}

    def _plain(self, value: Any) -> Any:
        match value:
            case Mapping():
                return {key: self._plain(value) for key, value in value.items()}
            case list() | tuple():
                return [self._plain(item) for item in value]
            case str():
                return self._text(value)
            case _:
                return value

    def _text(self, text: str) -> str:
        decoded = _decoded(text)
        if decoded is not None:
            quoted = json.dumps(self._template(decoded), ensure_ascii=False)
            return f"${{base64encode({quoted})}}"
        return self._template(text)

    def _template(self, text: str) -> str:
        escaped = re.sub(r"([$%])\{", r"\1\1{", text)
        return _MARKER.sub(lambda match: f"${{{self._refer(int(match[1]))}}}", escaped)

    def _refer(self, number: int) -> str:
        reference = self.markers.references[number]
        self.used.add(reference.block)
        kind, type_ = (
            ("data_source_schemas", reference.block.split(".")[1])
            if reference.block.startswith("data.")
            else ("resource_schemas", reference.block.split(".")[0])
        )
        path = _attribute_path(reference.path, self._schema(kind, type_))
        if not path:
            raise ValueError(f"{type_} of the provider has no {reference.path}")
        return f"{reference.block}.{path}"


def _attribute_path(path: Path, block: Block | None) -> str:
    """Return a property's path as an attribute's: with the index that Pulumi leaves out where a list has one element.

    Empty where the schema does not know it.
    """
    key, *rest = path
    argument = block.find(str(key)) if block else None
    if argument is None:
        return ""
    if not rest:
        return argument.name
    index, below = (rest[0], rest[1:]) if isinstance(rest[0], int) else (0, rest)
    inner = _attribute_path(tuple(below), argument.block) if below else ""
    if below and not inner:
        return ""
    return f"{argument.name}[{index}]" + (f".{inner}" if inner else "")


def _decoded(text: str) -> str | None:
    """Return the marker that the text encodes; None for text that holds none, or in clear text."""
    if len(text) < 16 or _MARKER.search(text):
        return None
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except ValueError:
        return None
    return decoded if _MARKER.search(decoded) else None

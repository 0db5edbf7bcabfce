"""Resource monitor that takes the registrations of a Pulumi program as an engine would.

It rests on a few private names of the SDK, kept in this file and in `recorder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime import mocks, rpc, settings
from pulumi.runtime.proto import callback_pb2, resource_pb2

from paddock.plan.engine import eks_component, fake_cloud
from paddock.plan.engine.graph import STACK, PlanError, Resource
from paddock.plan.engine.pulumi_serialization import decode_struct, encode, encode_struct
from paddock.plan.engine.values import UNKNOWN


class NoMocks(mocks.Mocks):
    """The SDK insists on mocks; the monitor below answers before they are asked."""

    def call(self, args: mocks.MockCallArgs) -> Any:
        raise NotImplementedError(args.token)

    def new_resource(self, args: mocks.MockResourceArgs) -> Any:
        raise NotImplementedError(args.typ)


class _Transforms:
    """Stands in for the server on which an engine calls a program's transforms back."""

    def __init__(self) -> None:
        self.by_token: dict[str, Callable[[pulumi.ResourceTransformArgs], Any]] = {}

    def register_transform(self, transform: Callable[[pulumi.ResourceTransformArgs], Any]) -> callback_pb2.Callback:
        token = str(len(self.by_token))
        self.by_token[token] = transform
        return callback_pb2.Callback(token=token, target="plan")

    def apply(self, tokens: tuple[str, ...], type_: str, name: str, declared: dict[str, Any]) -> None:
        """Changes what is `declared`: its inputs, protection, ignored changes and order of a replacement. Other options
        cannot be planned.
        """
        for token in tokens:
            options = pulumi.ResourceOptions(
                protect=declared["protect"],
                ignore_changes=list(declared["ignore_changes"]),
                delete_before_replace=declared["delete_before_replace"],
            )
            before = dict(vars(options))
            result = self.by_token[token](
                pulumi.ResourceTransformArgs(
                    custom=declared["custom"], type_=type_, name=name, props=declared["inputs"], opts=options
                )
            )
            if result is None:
                continue
            changed = {key for key, value in vars(result.opts).items() if (value or None) != (before[key] or None)}
            if unknown := changed - {"protect", "ignore_changes", "delete_before_replace", "hooks"}:
                raise PlanError(
                    f"a transform changes {', '.join(sorted(unknown))} of {name}, which a plan cannot follow"
                )
            declared["inputs"] = dict(result.props)
            declared["protect"] = bool(result.opts.protect)
            declared["delete_before_replace"] = bool(result.opts.delete_before_replace)
            declared["ignore_changes"] = tuple(result.opts.ignore_changes or ())


class Monitor(mocks.MockMonitor):
    """Takes the program's registrations as an engine would, and answers with stand-ins for what a cloud would say."""

    def __init__(self, preview: bool, account: str, answers: fake_cloud.Answers) -> None:
        super().__init__(NoMocks())
        self.preview, self.account, self.answers = preview, account, answers
        self.transforms = _Transforms()
        self.declared: dict[str, Resource] = {}
        self.states: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.lookups: list[tuple[str, Mapping[str, Any]]] = []
        self._tokens: dict[str, tuple[str, ...]] = {}
        """URN -> transforms that hold for the resource and everything below it."""

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        above = parent.split("::")[2] if parent else ""
        qualified = type_ if above in ("", STACK) else f"{above}${type_}"
        return f"urn:pulumi:{settings.get_stack()}::{settings.get_project()}::{qualified}::{name}"

    def RegisterResource(self, request: Any) -> Any:
        own = tuple(callback.token for callback in request.transforms)
        urn = self._declare(
            request.parent,
            request.type,
            request.name,
            custom=request.custom,
            inputs=_plain(request.object),
            tokens=own + self._tokens.get(request.parent, ()),
            dependencies=tuple(sorted(request.dependencies)),
            property_dependencies={k: tuple(sorted(v.urns)) for k, v in sorted(request.propertyDependencies.items())},
            provider=request.provider.replace(rpc.UNKNOWN, UNKNOWN),
            protect=request.protect,
            ignore_changes=tuple(request.ignoreChanges),
            delete_before_replace=request.deleteBeforeReplace,
        )
        if request.type == STACK:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        response = self._response(urn, request)
        if request.remote:
            self._expand(urn, request, response)
        return response

    def _response(self, urn: str, request: Any) -> Any:
        id_, state = self.states[urn]
        if isinstance(request.object, dict):
            return _Registered(urn, id_, dict(state))
        if not state or self._tokens[urn]:
            return resource_pb2.RegisterResourceResponse(urn=urn, id=id_, object=encode_struct(state))
        # Inputs that no transform has changed go back as they came: they need not be encoded again.
        response = resource_pb2.RegisterResourceResponse(urn=urn, id=id_, object=request.object)
        for key in state.keys() - self.declared[urn].inputs.keys():
            response.object.fields[key].CopyFrom(encode(state[key]))
        return response

    def _declare(self, parent: str, type_: str, name: str, *, tokens: tuple[str, ...], **declared: Any) -> str:
        urn = self.make_urn(parent, type_, name)
        if urn in self.declared:
            raise PlanError(f"two resources of type {type_} are named {name}")
        self.transforms.apply(tokens, type_, name, declared)
        self.declared[urn] = Resource(urn=urn, type=type_, name=name, parent=parent, **declared)
        self._tokens[urn] = tokens
        if self.preview and self._unreached(type_, declared["provider"]):
            self.states[urn] = ("", {})
        elif declared["custom"]:
            id_ = "" if self.preview else self.answers.resource_id(type_, name)
            outputs = {} if self.preview else self.answers.outputs(type_, name, declared["inputs"], self.account)
            self.states[urn] = (id_, {**outputs, **declared["inputs"]})
        else:
            self.states[urn] = ("", {})
        return urn

    def _unreached(self, type_: str, provider: str) -> bool:
        """Return whether its cluster does not exist yet: the provider then answers nothing, not even a name."""
        behind = self.declared.get(provider.rpartition("::")[0])
        return type_.startswith("kubernetes:") and behind is not None and UNKNOWN in behind.inputs.values()

    def _expand(self, urn: str, request: Any, response: Any) -> None:
        """Register the children of a component that runs in another process."""
        if request.type != eks_component.TYPE:
            raise PlanError(f"{request.name}: components of type {request.type} cannot be planned without an engine")
        component = self.declared[urn]
        depends = {key: tuple(dependency.urns) for key, dependency in request.propertyDependencies.items()}
        provider = next((ref for package, ref in sorted(request.providers.items()) if package == "aws"), "")
        urns: dict[str, str] = {}
        try:
            children = list(eks_component.children(request.name, component.inputs, depends))
        except eks_component.NotFollowed as error:
            raise PlanError(f"{request.name}: {error}") from None
        for child in children:
            parent = urns[child.parent] if child.parent else urn
            by_property = {
                k: tuple(sorted(urns.get(d, d) for d in v)) for k, v in sorted(child.property_dependencies.items())
            }
            urns[child.key] = self._declare(
                parent,
                child.type,
                child.name,
                custom=child.custom,
                inputs=_resolve(child.inputs, urns, self.states, self.preview),
                tokens=self._tokens[urn],
                dependencies=tuple(sorted({urns.get(d, d) for d in child.dependencies})),
                property_dependencies=by_property,
                provider=provider.replace(rpc.UNKNOWN, UNKNOWN)
                if child.custom and child.type.startswith("aws:")
                else "",
                protect=request.protect,
                ignore_changes=child.ignore_changes,
                delete_before_replace=False,
                expanded=True,
            )
        for output, key in eks_component.OUTPUTS.items():
            reference = response.object.fields[output].struct_value.fields
            reference[rpc._special_sig_key].string_value = rpc._special_resource_sig
            reference["urn"].string_value = urns[key]
            reference["id"].string_value = self.states[urns[key]][0] or rpc.UNKNOWN
            reference["packageVersion"].string_value = ""

    def ReadResource(self, request: Any) -> Any:
        urn = self._declare(
            request.parent,
            request.type,
            request.name,
            custom=True,
            inputs=_plain(request.properties),
            tokens=(),
            dependencies=tuple(sorted(request.dependencies)),
            property_dependencies={},
            provider=request.provider.replace(rpc.UNKNOWN, UNKNOWN),
            protect=False,
            ignore_changes=(),
            delete_before_replace=False,
        )
        state = fake_cloud.read(request.type, request.id, self.preview)
        self.states[urn] = (request.id, state)
        return resource_pb2.ReadResourceResponse(urn=urn, properties=encode_struct(state))

    def Invoke(self, request: Any) -> Any:
        arguments = decode_struct(request.args)
        if request.tok == "pulumi:pulumi:getResource":
            id_, state = self.states[arguments["urn"]]
            answer: Mapping[str, Any] = {"urn": arguments["urn"], "id": id_, "state": dict(state)}
        else:
            self.lookups.append((request.tok, arguments))
            response = self.answers.lookup(request.tok, arguments, self.account)
            if response is None:
                raise PlanError(f"the program asks the cloud {request.tok}, which a plan cannot answer")
            answer = response
        return resource_pb2.ResourceInvokeResponse(**{"return": encode_struct(answer)})


@dataclass(frozen=True, slots=True)
class _Registered:
    """The answer to a request whose inputs are plain data. It stands in for the message of the SDK."""

    urn: str
    id: str
    object: dict[str, Any]
    result: int = resource_pb2.Result.SUCCESS
    unknown: bool = False
    propertyDependencies: Mapping[str, Any] = field(default_factory=dict)


def _plain(properties: Any) -> dict[str, Any]:
    """Return properties as plain data, as the shortcuts through the SDK send most of them."""
    return properties if isinstance(properties, dict) else decode_struct(properties)


def _resolve(value: Any, urns: Mapping[str, str], states: Mapping[str, Any], preview: bool) -> Any:
    """Replaces a child's references to its siblings by what they turned out to be."""
    match value:
        case eks_component.Output(key=key, name=name):
            id_, state = states[urns[key]]
            return id_ or UNKNOWN if name == "id" else state.get(name, UNKNOWN)
        case eks_component.Computed(value=inner):
            resolved = _resolve(inner, urns, states, preview)
            return UNKNOWN if _has_unknown(resolved) else resolved
        case Mapping():
            return {k: _resolve(v, urns, states, preview) for k, v in value.items()}
        case list():
            return [_resolve(item, urns, states, preview) for item in value]
        case _:
            return value


def _has_unknown(value: Any) -> bool:
    match value:
        case Mapping():
            return any(map(_has_unknown, value.values()))
        case list():
            return any(map(_has_unknown, value))
        case _:
            return bool(value == UNKNOWN)

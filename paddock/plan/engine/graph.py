"""Runs the Pulumi program in-process and keeps every resource it declares: no engine, no cloud, no network.

The program is the one that `pulumi up` runs, through the SDK's own resource monitor, so there is no second
description of the infrastructure that could drift. It rests on a few private names of the SDK, kept in this file.
"""

from __future__ import annotations

import asyncio
import contextvars
import graphlib
import heapq
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.runtime import mocks, rpc, settings
from pulumi.runtime.config import set_all_config
from pulumi.runtime.proto import callback_pb2, resource_pb2
from pulumi.runtime.stack import run_pulumi_func

from paddock.errors import PaddockError
from paddock.plan.engine import eks_component, fake_cloud
from paddock.plan.engine.pulumi_serialization import decode_struct, encode_struct
from paddock.plan.engine.values import UNKNOWN, Secret, redact

STACK = "pulumi:pulumi:Stack"


class PlanError(PaddockError):
    """The program cannot be planned as the stack is written."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource as the program declares it."""

    urn: str
    type: str
    name: str
    parent: str
    """URN of the parent; empty for the stack itself."""
    custom: bool
    """Whether a provider makes it; components only group others."""
    inputs: Mapping[str, Any]
    """As sent to the provider, camelCase; secrets wrapped in Secret, what is known only later is UNKNOWN."""
    dependencies: tuple[str, ...]
    """URNs, explicit and implied, sorted."""
    property_dependencies: Mapping[str, tuple[str, ...]]
    provider: str
    """URN and id of the provider; empty for the default one and for components."""
    protect: bool
    ignore_changes: tuple[str, ...]
    delete_before_replace: bool
    expanded: bool = False
    """Not declared by the program but by a component that runs elsewhere; taken from recordings of it."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Everything a program declares."""

    project: str
    stack: str
    resources: Mapping[str, Resource]
    """By URN; each stands after its parent, its provider and what it depends on, and else in order of the URN."""
    outputs: Mapping[str, Any]
    lookups: tuple[tuple[str, Mapping[str, Any]], ...]
    """Questions the program asks the cloud while it runs, answered here with stand-ins: (token, arguments)."""

    def of_type(self, type_: str) -> tuple[Resource, ...]:
        return tuple(resource for resource in self.resources.values() if resource.type == type_)


def record(
    program: Callable[[], Any],
    *,
    project: str,
    stack: str,
    config: Mapping[str, str],
    secrets: frozenset[str] = frozenset(),
    preview: bool = False,
    account: str = fake_cloud.ACCOUNT,
    answers: fake_cloud.Answers = fake_cloud,
) -> Graph:
    """Runs `program` and returns what it declared.

    `preview` plays the first preview of a stack, where ids and computed outputs are not known yet; otherwise
    they get stand-ins from `answers`, so that all of the program runs. Raises PlanError when the program refuses its
    configuration, and whatever else the program raises.
    """
    monitor = _Monitor(preview, account, answers)

    async def main() -> dict[str, Any]:
        await run_pulumi_func(program)
        root = settings.get_root_resource()
        outputs = {}
        for key, value in getattr(root, "outputs", {}).items():
            output = pulumi.Output.from_input(value)
            outputs[key] = await output.future() if await output.is_known() else UNKNOWN
            if await output.is_secret():
                outputs[key] = Secret(outputs[key])
        return outputs

    def go() -> dict[str, Any]:  # the SDK keeps its settings in context variables
        loop = asyncio.new_event_loop()
        loop.set_default_executor(_Inline())
        # Tasks that die with the first error would be reported once more when they are collected.
        loop.set_exception_handler(lambda _loop, _context: None)
        asyncio.set_event_loop(loop)
        try:
            set_all_config(dict(config), list(secrets))
            settings.ROOT.set(None)
            settings.SETTINGS.outputs = set()  # set_mocks() leaves the previous program's here
            mocks.set_mocks(_NoMocks(), project=project, stack=stack, preview=preview, monitor=monitor, logger=_quiet())
            settings.SETTINGS.callbacks = monitor.transforms  # else the SDK starts a server to be called back on
            return loop.run_until_complete(main())
        except pulumi.RunError as error:
            raise PlanError(str(error)) from None
        finally:
            pending = asyncio.all_tasks(loop)
            for task in pending:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            asyncio.set_event_loop(None)
            loop.close()

    outputs = contextvars.copy_context().run(go)
    lookups = sorted(monitor.lookups, key=lambda lookup: json.dumps(redact(lookup), sort_keys=True))
    return Graph(project, stack, _ordered(monitor.declared), outputs, tuple(lookups))


def _ordered(declared: Mapping[str, Resource]) -> dict[str, Resource]:
    """The SDK's tasks overtake each other, so the order of registration is not the same on every run."""
    needs = {
        urn: {resource.parent, resource.provider.rpartition("::")[0], *resource.dependencies} & set(declared)
        for urn, resource in declared.items()
    }
    sorter = graphlib.TopologicalSorter(needs)
    sorter.prepare()
    waiting: list[str] = list(sorter.get_ready())
    heapq.heapify(waiting)
    ordered = {}
    while waiting:
        urn = heapq.heappop(waiting)
        ordered[urn] = declared[urn]
        sorter.done(urn)
        for ready in sorter.get_ready():
            heapq.heappush(waiting, ready)
    return ordered


def _quiet() -> logging.Logger:
    logger = logging.getLogger("paddock.plan.program")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


class _NoMocks(mocks.Mocks):
    """The SDK insists on mocks; the monitor below answers before they are asked."""

    def call(self, args: mocks.MockCallArgs) -> Any:
        raise NotImplementedError(args.token)

    def new_resource(self, args: mocks.MockResourceArgs) -> Any:
        raise NotImplementedError(args.typ)


class _Inline(ThreadPoolExecutor):
    """Runs the SDK's calls at once on the loop's own thread: the same order on every run."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class _Transforms:
    """Stands in for the server on which an engine calls a program's transforms back."""

    def __init__(self) -> None:
        self.by_token: dict[str, Callable[[pulumi.ResourceTransformArgs], Any]] = {}

    def register_transform(self, transform: Callable[[pulumi.ResourceTransformArgs], Any]) -> callback_pb2.Callback:
        token = str(len(self.by_token))
        self.by_token[token] = transform
        return callback_pb2.Callback(token=token, target="plan")

    def apply(self, tokens: tuple[str, ...], type_: str, name: str, declared: dict[str, Any]) -> None:
        """Changes what is `declared`: its inputs, protection and ignored changes. Other options cannot be planned."""
        for token in tokens:
            options = pulumi.ResourceOptions(
                protect=declared["protect"], ignore_changes=list(declared["ignore_changes"])
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
            if unknown := changed - {"protect", "ignore_changes", "hooks"}:
                raise PlanError(
                    f"a transform changes {', '.join(sorted(unknown))} of {name}, which a plan cannot follow"
                )
            declared["inputs"] = dict(result.props)
            declared["protect"] = bool(result.opts.protect)
            declared["ignore_changes"] = tuple(result.opts.ignore_changes or ())


class _Monitor(mocks.MockMonitor):
    """Takes the program's registrations as an engine would, and answers with stand-ins for what a cloud would say."""

    def __init__(self, preview: bool, account: str, answers: fake_cloud.Answers) -> None:
        super().__init__(_NoMocks())
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
            inputs=decode_struct(request.object),
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
        id_, state = self.states[urn]
        response = resource_pb2.RegisterResourceResponse(urn=urn, id=id_, object=encode_struct(state))
        if request.remote:
            self._expand(urn, request, response)
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
        """Whether it goes into a cluster that is not there yet: its provider then knows nothing, not even a name."""
        behind = self.declared.get(provider.rpartition("::")[0])
        return type_.startswith("kubernetes:") and behind is not None and UNKNOWN in behind.inputs.values()

    def _expand(self, urn: str, request: Any, response: Any) -> None:
        """What a component in another process would register under itself."""
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
            inputs=decode_struct(request.properties),
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

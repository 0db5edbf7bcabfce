"""A provider process: the part of Pulumi's provider protocol that is the same for every stand-in.

Created resources are kept in one store for the stack. Previews create nothing and return only certain values.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from paddock.lab.providers.diff import Change, changes, deletes_first
from paddock.lab.providers.faults import FaultError, Faults
from paddock.lab.providers.store import Store
from paddock.lab.providers.wire import decode_struct, encode_struct

STORE = "PADDOCK_LAB_STORE"
_MAX = 400 * 1024 * 1024
State = Mapping[str, Any]


class RefusedError(Exception):
    """The refusal that a cloud would return."""


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """Serves one package. Subclasses describe its resources."""

    package: str
    version: str

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.store = Store(Path(environment.get(STORE) or f"{self.package}.json"))
        self.faults = Faults.of(environment)

    # For subclasses.

    def check_inputs(self, type_: str, request: Any, inputs: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs with the provider's own defaults. Raises RefusedError for invalid ones."""
        return inputs

    def identity(self, type_: str, urn: str, inputs: Mapping[str, Any], state: Mapping[str, Any], serial: int) -> str:
        """Return the id of a new resource; another one for every `serial` where AWS would choose it."""
        raise NotImplementedError

    def upserts(self, type_: str) -> bool:
        """Return whether a create changes what exists already, instead of being refused."""
        return False

    def created(self, type_: str, id_: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole state of a new resource."""
        return dict(inputs)

    def updated(
        self, type_: str, inputs: State, computed: State, changes: list[Change], *, preview: bool
    ) -> dict[str, Any]:
        """Return the whole state after a change, of which `computed` did not come from inputs.

        In a preview UNKNOWN where only the change itself determines a value.
        """
        return {**computed, **inputs}

    def may_delete(self, type_: str, state: Mapping[str, Any]) -> None:
        """Raises RefusedError for a resource that is protected from deletion."""

    def answer(self, token: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the result of a function; None for one that this stand-in does not know."""
        return None

    # The protocol.

    def Handshake(self, request: Any, context: Any) -> Any:
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=self.version)

    def Attach(self, request: Any, context: Any) -> Any:
        return Empty()

    Cancel = Attach

    def GetSchema(self, request: Any, context: Any) -> Any:
        return provider_pb2.GetSchemaResponse(schema=json.dumps({"name": self.package, "version": self.version}))

    def CheckConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        return _diff(f"pulumi:providers:{self.package}", request, {})

    def Configure(self, request: Any, context: Any) -> Any:
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def Check(self, request: Any, context: Any) -> Any:
        type_ = _type(request)
        try:
            inputs = self.check_inputs(type_, request, decode_struct(request.news), decode_struct(request.olds))
        except RefusedError as error:
            return provider_pb2.CheckResponse(failures=[provider_pb2.CheckFailure(reason=str(error))])
        return provider_pb2.CheckResponse(inputs=encode_struct(inputs))

    def Diff(self, request: Any, context: Any) -> Any:
        return _diff(_type(request), request, decode_struct(request.news))

    def Create(self, request: Any, context: Any) -> Any:
        type_, inputs = _type(request), decode_struct(request.properties)
        if request.preview:
            return provider_pb2.CreateResponse(properties=encode_struct(inputs))
        lag = self._meet("create", request.urn, context)
        with self.store.change() as resources:
            serial = 0
            while (key := f"{type_} {(id_ := self.identity(type_, request.urn, inputs, {}, serial))}") in resources:
                if self.upserts(type_):
                    break
                serial += 1
                if id_ == self.identity(type_, request.urn, inputs, {}, serial):
                    context.abort(grpc.StatusCode.ALREADY_EXISTS, f"{type_} {id_} exists already")
            state = self.created(type_, id_, inputs)
            resources[key] = {"urn": request.urn, "state": self.store.hash_secrets(state)}
        time.sleep(lag)
        return provider_pb2.CreateResponse(id=id_, properties=encode_struct(state))

    def Update(self, request: Any, context: Any) -> Any:
        type_, inputs, state = _type(request), decode_struct(request.news), decode_struct(request.olds)
        old = decode_struct(request.old_inputs)
        computed = {key: value for key, value in state.items() if key not in old}
        after = self.updated(type_, inputs, computed, changes(type_, old, inputs), preview=request.preview)
        if not request.preview:
            lag = self._meet("update", request.urn, context)
            with self.store.change() as resources:
                key = f"{type_} {request.id}"
                if key not in resources:
                    context.abort(grpc.StatusCode.NOT_FOUND, f"{type_} {request.id} is not there")
                resources[key] = {"urn": request.urn, "state": self.store.hash_secrets(after)}
            time.sleep(lag)
        return provider_pb2.UpdateResponse(properties=encode_struct(after))

    def Read(self, request: Any, context: Any) -> Any:
        type_ = _type(request)
        self._meet("read", request.urn, context)
        stored = self.store.resources().get(f"{type_} {request.id}")
        if stored is None:
            return provider_pb2.ReadResponse()
        inputs = decode_struct(request.inputs)
        # What an engine adopts after a kill has inputs and no outputs yet.
        state = self.store.restore_secrets(stored["state"], {**inputs, **decode_struct(request.properties)})
        declared = inputs or state  # an import declares what is there
        return provider_pb2.ReadResponse(
            id=request.id, properties=encode_struct(state), inputs=encode_struct(_now(declared, state))
        )

    def Delete(self, request: Any, context: Any) -> Any:
        type_ = _type(request)
        lag = self._meet("delete", request.urn, context)
        with self.store.change() as resources:
            stored = resources.get(f"{type_} {request.id}")
            if stored is not None:
                try:
                    self.may_delete(type_, stored["state"])
                except RefusedError as error:
                    context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
                del resources[f"{type_} {request.id}"]
        time.sleep(lag)
        return Empty()

    def Invoke(self, request: Any, context: Any) -> Any:
        self._meet("invoke", request.tok, context)
        result = self.answer(request.tok, decode_struct(request.args))
        if result is None:
            reason = f"this stand-in of {self.package} does not answer {request.tok}"
            return provider_pb2.InvokeResponse(failures=[provider_pb2.CheckFailure(reason=reason)])
        return provider_pb2.InvokeResponse(**{"return": encode_struct(result)})

    def _meet(self, operation: str, resource: str, context: Any) -> float:
        try:
            return self.faults.meet(operation, resource)
        except FaultError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
            raise  # abort has raised already, which its types do not say


def serve(servicer: provider_pb2_grpc.ResourceProviderServicer) -> None:
    """Serve until the engine interrupts this process, or dies without doing so."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=16),
        options=[("grpc.max_receive_message_length", _MAX), ("grpc.max_send_message_length", _MAX)],
    )
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    server.wait_for_termination()


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def _now(declared: Any, actual: Any) -> Any:
    """Return the actual values of declared properties; what the cloud filled in is not a declaration."""
    if isinstance(declared, Mapping) and isinstance(actual, Mapping):
        return {
            key: value if key.startswith("__") else _now(value, actual[key])
            for key, value in declared.items()
            if key.startswith("__") or key in actual
        }
    return actual


def _type(request: Any) -> str:
    type_: str = request.type or request.urn.split("::")[2].rpartition("$")[2]
    return type_


def _diff(type_: str, request: Any, declared: Mapping[str, Any]) -> Any:
    old = decode_struct(request.old_inputs if request.old_inputs.fields else request.olds)
    found, proto = changes(type_, old, decode_struct(request.news)), provider_pb2
    detail = {}
    for change in found:
        path = ".".join(f'["{part}"]' if "." in part else part for part in change.path).replace(".[", "[")
        kind = proto.PropertyDiff.Kind.Value(change.kind.upper() + ("_REPLACE" if change.replaces else ""))
        detail[path] = proto.PropertyDiff(kind=kind, inputDiff=True)
    return proto.DiffResponse(
        changes=proto.DiffResponse.DIFF_SOME if found else proto.DiffResponse.DIFF_NONE,
        diffs=sorted({change.path[0] for change in found}),
        replaces=sorted({change.path[0] for change in found if change.replaces}),
        detailedDiff=detail,
        hasDetailedDiff=True,
        deleteBeforeReplace=deletes_first(declared, found),
    )

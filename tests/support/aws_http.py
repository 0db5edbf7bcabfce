"""The stand-in for an AWS account over HTTP, for processes: AWS_ENDPOINT_URL leads to it.

Requests are read and answers written by the models of botocore, in each service's own protocol.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from botocore.session import Session
from moto.core.model import ServiceModel
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.serialize import get_serializer_class
from werkzeug.datastructures import Headers, MultiDict

from tests.support.aws_account import Account, Refusal
from tests.support.http_server import Handler, serving

_SIGNING = {"monitoring": "cloudwatch", "servicequotas": "service-quotas", "tagging": "resourcegroupstaggingapi"}
"""Services whose name in a signature is not that of the API."""
_CBOR = "smithy-rpc-v2-cbor"


@contextmanager
def serve(account: Account) -> Iterator[dict[str, str]]:
    """Serve the account; yield the variables by which a process asks it."""

    class Requests(Handler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = Headers(dict(self.headers))
            status, headers, answer = _answer(account, self.command, self.path, asked, self.body())
            self.send(status, answer, headers)

        do_GET = do_POST

    with serving(Requests) as url:
        yield {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}


def _answer(
    account: Account, method: str, path: str, headers: Headers, body: bytes
) -> tuple[int, Mapping[str, str], bytes]:
    signed = re.search(r"/([\w-]+)/aws4_request", headers.get("Authorization", ""))
    assert signed, f"{path} is not signed"
    service = _SIGNING.get(signed[1], signed[1])
    if service == "elasticloadbalancing":  # two APIs of one name
        service = "elb" if b"Version=2012-06-01" in body else "elbv2"
    model = _model(service)
    operation, parameters, protocol = _request(model, method, path, headers, body)
    try:
        answer = account.ask(f"{service}.{operation}", parameters)
    except Refusal as refusal:
        return _refused(refusal, protocol)
    if protocol == _CBOR:
        return 200, {"Content-Type": "application/cbor", "smithy-protocol": "rpc-v2-cbor"}, _cbor(answer)
    serialized = get_serializer_class(service, protocol)(operation_model=model.operation_model(operation))
    response = serialized.serialize(answer)
    text = response["body"]
    return response["status_code"], response["headers"], text.encode() if isinstance(text, str) else text


@cache
def _model(service: str) -> ServiceModel:
    return ServiceModel(Session().get_component("data_loader").load_service_model(service, "service-2"), service)


def _request(
    model: ServiceModel, method: str, path: str, headers: Headers, body: bytes
) -> tuple[str, dict[str, Any], str]:
    """Return the operation of a request, its parameters, and the protocol that it is in."""
    parts = urlsplit(path)
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    if headers.get("smithy-protocol") == "rpc-v2-cbor":
        return parts.path.rpartition("/")[2], {}, _CBOR
    form = {name: values[-1] for name, values in parse_qs(body.decode(errors="replace")).items()}
    found: dict[str, str] = {}
    if target := headers.get("X-Amz-Target"):
        operation, protocol = target.rpartition(".")[2], "json"
    elif "Action" in form:
        operation, protocol = form["Action"], "ec2" if model.metadata["protocol"] == "ec2" else "query"
    else:
        protocol = "rest-json"
        operation, found = _routed(model, method, parts.path)
    request: Any = {
        "body": body,
        "headers": headers,
        "method": method,
        "url_params": found,
        "url_path": parts.path,
        "values": MultiDict(form or query),
    }
    parser = PROTOCOL_PARSERS[protocol](model.operation_model(operation), timestamp_parser=str)
    return operation, dict(parser.parse(request)), protocol


def _routed(model: ServiceModel, method: str, path: str) -> tuple[str, dict[str, str]]:
    for name in model.operation_names:
        http = model.operation_model(name).http
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(http["requestUri"].partition("?")[0]))
        if http["method"] == method and (match := re.fullmatch(pattern, path)):
            return name, {key: unquote(value) for key, value in match.groupdict().items()}
    raise AssertionError(f"{model.service_name} has no {method} {path}")


def _refused(refusal: Refusal, protocol: str) -> tuple[int, Mapping[str, str], bytes]:
    code, message = refusal.code, refusal.message
    if protocol in ("ec2", "query"):
        error = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
        whole = f"<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>"
        whole = whole if protocol == "ec2" else f"<ErrorResponse>{error}</ErrorResponse>"
        return refusal.status, {"Content-Type": "text/xml"}, whole.encode()
    document = {"__type": code, "message": message}
    if protocol == _CBOR:
        return refusal.status, {"Content-Type": "application/cbor", "smithy-protocol": "rpc-v2-cbor"}, _cbor(document)
    return refusal.status, {"Content-Type": "application/json", "x-amzn-ErrorType": code}, json.dumps(document).encode()


def _cbor(value: Any) -> bytes:
    """Encode an answer as RFC 8949 does; times as seconds since 1970, as AWS's protocol has them."""
    if isinstance(value, Mapping):
        return _head(5, len(value)) + b"".join(_cbor(key) + _cbor(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return _head(4, len(value)) + b"".join(map(_cbor, value))
    if isinstance(value, str):
        text = value.encode()
        return _head(3, len(text)) + text
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, datetime):
        return b"\xc1" + _cbor(value.astimezone(UTC).timestamp())
    if isinstance(value, int) and value >= 0:
        return _head(0, value)
    return b"\xfb" + struct.pack(">d", value)


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    return bytes([major << 5 | 26]) + struct.pack(">I", number)

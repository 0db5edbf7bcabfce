"""AWS at the boundary of a process: an HTTP server for AWS_ENDPOINT_URL that hands requests to moto in this process.

Operations that moto lacks are answered by the test: `answers` by service and path.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from moto.core.botocore_stubber import BotocoreStubber

from tests.support.http_server import Handler, serving

REGION = "us-west-2"
Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
_HOSTS = {"ecr": "api.ecr"}
_SCOPE = re.compile(r"Credential=[^/]+/\d+/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")


class AwsServer:
    """Requests so far, and the variables that lead a process here."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = answers
        self.refused: set[str] = set()
        """Requests that are denied."""
        self.requests: list[str] = []
        """`service/operation` of JSON protocols, `service/Action` of EC2's."""
        self.url = ""

    @property
    def actions(self) -> set[str]:
        """The actions so far, as IAM names them; without those of REST protocols."""
        asked = {name.replace("tagging/", "tag/").replace("/", ":") for name in self.requests if name.count("/") == 1}
        return {action for action in asked if action.partition(":")[2].isalpha()}

    @property
    def env(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_REGION": REGION,
        }


@contextlib.contextmanager
def serve(answers: Mapping[str, Answer] | None = None) -> Iterator[AwsServer]:
    """Yield a server over moto's backends, which `mock_aws` must have made ready."""
    server = AwsServer(answers or {})
    with serving(type("Own", (_Handler,), {"account": server})) as server.url:
        yield server


class _Handler(Handler):
    account: AwsServer

    def do_GET(self) -> None:
        body = self.body()
        scope = _SCOPE.search(self.headers.get("Authorization", ""))
        if scope is None:
            self._send(403, {}, b"no credentials")
            return
        service, region = scope["service"], scope["region"]
        action = re.search(rb"Action=(\w+)", body)
        target = self.headers.get("X-Amz-Target", self.path.partition("?")[0])
        operation = action[1].decode() if action else target.rpartition(".")[2]
        name = f"{service}/{operation.strip('/')}"
        self.account.requests.append(name)
        if name in self.account.refused:
            error = "<Error><Code>UnauthorizedOperation</Code><Message>You are not authorized</Message></Error>"
            self._send(403, {}, f"<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>".encode())
            return
        if name in self.account.answers:
            text = json.dumps(self.account.answers[name](json.loads(body or b"{}")))
            self._send(200, {"Content-Type": "application/json"}, text.encode())
            return
        headers = HTTPHeaders()
        for key, value in self.headers.items():
            headers[key] = value
        url = f"https://{_HOSTS.get(service, service)}.{region}.amazonaws.com{self.path}"
        headers.replace_header("Host", url.split("/")[2])
        request = AWSPreparedRequest(self.command, url, headers, body, stream_output=False)
        status, answered, content = BotocoreStubber().process_request(request) or (404, {}, "no such operation")
        self._send(status, answered, content if isinstance(content, bytes) else str(content).encode())

    do_POST = do_PUT = do_DELETE = do_GET

    def _send(self, status: int, headers: Mapping[str, Any], body: bytes) -> None:
        own = {name: str(headers[name]) for name in headers if name.lower() not in ("content-length", "server", "date")}
        with contextlib.suppress(BrokenPipeError):  # the client was interrupted
            self.send(status, body, own)

"""Messages between the parent and the client: the plan of a load on its way in, exchanges on their way out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from paddock.bench.load.workload import Lengths, Request, TraceEntry, requests, trace_requests
from paddock.openai.errors import Failure


@dataclass(frozen=True, slots=True)
class Target:
    """Endpoint: where requests go and what all of them have in common."""

    origin: str
    """Scheme, host and port."""
    path: str
    body: Mapping[str, Any]
    """Body without prompt and length."""
    chat: bool
    exact: bool = False
    """True where the endpoint accepts `ignore_eos` and `min_tokens`, so that every answer has its full length."""
    key: str = field(default="", repr=False)
    verify: bool = True
    """False accepts any TLS certificate."""
    limit: str = "max_tokens"
    """Field that says how long an answer may be."""

    def request_body(self, request: Request, seed: int) -> bytes:
        text = request.text(seed)
        prompt = {"messages": [{"role": "user", "content": text}]} if self.chat else {"prompt": text}
        length = {self.limit: request.new} | ({"min_tokens": request.new} if self.exact else {})
        return json.dumps({**self.body, **prompt, **length}).encode()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Load to offer. With `arrivals` the loop is open, without it `concurrency` users each wait for their answer."""

    target: Target
    prompt: Lengths
    new: Lengths
    arrivals: tuple[float, ...] = ()
    """Seconds from the start, those of the warm-up among them."""
    schedule: str = ""
    """Arrivals in words."""
    burstiness: float | None = None
    trace: tuple[TraceEntry, ...] = ()
    concurrency: int = 0
    requests: int | None = None
    """Measured requests of a closed loop."""
    duration: float | None = None
    """Seconds after which a closed loop sends nothing more, counted from the first measured request."""
    warm_up: int = 0
    """First requests that are not measured."""
    timeout: float = 600.0
    """Seconds that one exchange may take."""
    seed: int = 0

    @property
    def total(self) -> int | None:
        """Number of requests with the warm-up; None where the duration decides."""
        if self.arrivals:
            return len(self.arrivals)
        return None if self.requests is None else self.warm_up + self.requests

    def all_requests(self) -> Iterator[Request]:
        source = trace_requests(self.trace) if self.trace else requests(self.prompt, self.new, self.seed)
        return islice(source, self.total)

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> LoadPlan:
        from pydantic import TypeAdapter

        return TypeAdapter(cls).validate_json(line)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and the bytes of its answer. Times are seconds of one monotonic clock since the load began."""

    index: int
    scheduled: float
    """Arrival by the schedule; in a closed loop the time of sending."""
    sent: float
    ended: float
    new: int
    """Tokens that were requested."""
    warm_up: bool = False
    status: int | None = None
    """HTTP status; None where no answer began."""
    pieces: tuple[tuple[float, bytes], ...] = ()
    """Body as it arrived."""
    failure: Failure | None = None

    def line(self) -> str:
        """Return the exchange as a line of JSON. Bytes are written as the characters of Latin-1, one for one."""
        data = {name: getattr(self, name) for name in self.__slots__}
        data["pieces"] = [(time, piece.decode("latin-1")) for time, piece in self.pieces]
        data["failure"] = self.failure and asdict(self.failure)
        return json.dumps(data)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Exchange:
        pieces = tuple((time, text.encode("latin-1")) for time, text in data["pieces"])
        return cls(**{**data, "pieces": pieces, "failure": data["failure"] and Failure(**data["failure"])})


@dataclass(frozen=True, slots=True)
class ClientUsage:
    """Last message of the client: how long the load took and what the client itself used."""

    seconds: float
    cpu_seconds: float

    @property
    def cpu_share(self) -> float:
        """Part of one core that the client was busy."""
        return self.cpu_seconds / self.seconds if self.seconds else 0.0

"""The gateway as a program of its own, before servers that others start: `python -m paddock.serve.gateway CONFIG`.

In Kubernetes it is a pod before Ray Serve LLM. It needs no Ray, writes no file, and always asks for API keys.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from paddock.errors import PaddockError, printable
from paddock.modes.config import Mode, Strict
from paddock.serve.admission.keys import api_keys, sums
from paddock.serve.admission.limits import MIB, MOST_TOKENS, Limits
from paddock.serve.errors import ServeInputError
from paddock.serve.gateway.app import Gateway
from paddock.serve.gateway.external import External
from paddock.serve.gateway.server import serve
from paddock.validation import described, read_yaml

_EVERY_S, _ANSWER_S = 5.0, 5.0
"""Seconds between two questions whether a server serves its model, and in which it must answer."""
_PORTS = 65536
_Count = Annotated[int, Field(ge=1)]
_Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Section(Strict):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, validate_by_name=False,
        validate_by_alias=True,
    )  # fmt: skip


class LimitSection(_Section):
    """Limits of requests; None: no limit."""

    body_mib: _Count = 4
    tokens: _Count = MOST_TOKENS
    user_in_flight: _Count | None = None
    user_per_minute: _Count | None = None
    queue: Annotated[int, Field(ge=0)] = 64
    answer_seconds: _Count = 600

    def limits(self) -> Limits:
        """Return them as the gateway has them."""
        return Limits(
            self.queue, self.user_in_flight, self.user_per_minute, self.body_mib * MIB, self.tokens,
            piece_seconds=float(self.answer_seconds),
        )  # fmt: skip


class ModelSection(_Section):
    """A model and its server, which knows it as `model`; `key_file` has the key that the server asks for."""

    id: _Name
    url: str
    model: _Name | None = None
    key_file: str | None = None
    concurrency: _Count = 64
    mode: Mode | Literal[""] = ""


class Config(_Section):
    """Configuration of the program. `listen` is ADDRESS:PORT, `keys_file` has an API key a line."""

    listen: str = "0.0.0.0:8000"
    keys_file: str
    limits: LimitSection = LimitSection()
    models: Annotated[tuple[ModelSection, ...], Field(min_length=1)]

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port. Raises ValueError."""
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal() or int(port) >= _PORTS:
            raise ValueError
        return host.strip("[]"), int(port)


class Servers:
    """Configured servers as instances: each is asked every few seconds whether it serves its model."""

    def __init__(self, models: Sequence[ModelSection], file: str) -> None:
        self._endpoints = [
            External.of(
                model.url, model.model or model.id, Path(model.key_file) if model.key_file else None,
                (f"{file}: models[{number}].url", "keyFile"),
            )
            for number, model in enumerate(models)
        ]  # fmt: skip
        self._rows: list[dict[str, Any]] = [
            {
                "id": model.id, "model": model.id, "state": "unreachable", "reason": "it has not been checked yet",
                "since": time.time(), "concurrency": model.concurrency, "mode": model.mode, "engine": "external",
                "paced": True, "upstream": endpoint.upstream,
            }
            for model, endpoint in zip(models, self._endpoints, strict=True)
        ]  # fmt: skip
        self._checked = 0.0
        self._checking: asyncio.Task[None] | None = None

    async def rows(self) -> list[dict[str, Any]]:
        """Return the instances; the first time after they have been asked."""
        now = asyncio.get_running_loop().time()
        if (self._checking is None or self._checking.done()) and (not self._checked or now > self._checked + _EVERY_S):
            self._checking = asyncio.create_task(self._check())
        if not self._checked and self._checking:
            await asyncio.shield(self._checking)
        return self._rows

    async def _check(self) -> None:
        reasons = await asyncio.gather(*(endpoint.problem(_ANSWER_S) for endpoint in self._endpoints))
        self._rows = [
            {**row, "state": "unreachable" if reason else "serving", "reason": reason}
            for row, reason in zip(self._rows, reasons, strict=True)
        ]
        self._checked = asyncio.get_running_loop().time()


def read(path: Path) -> Config:
    """Read a configuration, YAML or JSON. Raises ServeInputError with all its problems."""
    document = read_yaml(path, "a configuration, YAML or JSON", ServeInputError)
    try:
        config = Config.model_validate_json(json.dumps(document))
    except ValidationError as error:
        raise ServeInputError(described(error, Config, path)) from None
    ids = [model.id for model in config.models]
    for number, id in enumerate(ids):
        if id in ids[:number]:
            raise ServeInputError(f"{path}: models[{number}].id: {id} is there twice\n    expected: one entry an id")
    try:
        _ = config.address
    except ValueError:
        raise ServeInputError(
            f"{path}: listen: {config.listen} is not an address with a port"
            "\n    expected: ADDRESS:PORT, such as 0.0.0.0:8000"
        ) from None
    return config


def gateway(config: Config, file: str) -> Gateway:
    """Return the gateway of a configuration. Raises ServeInputError."""
    keys = sums(api_keys(Path(config.keys_file)))
    return Gateway(Servers(config.models, file).rows, keys, config.limits.limits())


def main(arguments: Sequence[str]) -> int:
    """Serve the configuration of a file until SIGTERM; open answers then have 25 seconds to end."""
    try:
        if len(arguments) != 1:
            raise ServeInputError("CONFIG is missing\n    expected: python -m paddock.serve.gateway CONFIG.yaml")
        config = read(Path(arguments[0]))
        serve(gateway(config, arguments[0]), *config.address)
    except PaddockError as error:
        print(printable(str(error)), file=sys.stderr)  # noqa: T201 - the program's own voice
        return error.exit_code
    return 0

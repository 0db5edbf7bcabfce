"""Endpoint of another server, by its URL: checked before it is taken, and asked whether it serves its model."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from paddock.openai.address import parse_url
from paddock.openai.errors import ExchangeError, OpenAIInputError
from paddock.serve.errors import ServeInputError, first_line
from paddock.serve.gateway.upstream import Upstream, key_of, whole

_MOST_BYTES = 1 << 20
_MOST_LETTERS = 200


@dataclass(frozen=True, slots=True)
class External:
    """Endpoint of another server. `key_file` is empty where it asks for no key."""

    url: str
    model: str
    key_file: str = ""

    @classmethod
    def of(
        cls, url: str, model: str, key_file: Path | None, flags: tuple[str, str] = ("--url", "--key-file")
    ) -> External:
        """Return the endpoint with a checked URL and key file. Raises ServeInputError."""
        try:
            address = parse_url(url)
        except OpenAIInputError as error:
            raise ServeInputError(
                f"{flags[0]}: {first_line(error).removeprefix('URL: ')}\n"
                "    expected: http:// or https://, such as http://localhost:8000\n"
                f"    fix: leave keys out of the URL; {flags[1]} names the file that holds one"
            ) from None
        if key_file is not None:
            key_of(str(key_file))
        return cls(f"{address.origin}{address.prefix}", model, str(key_file or ""))

    @property
    def upstream(self) -> Upstream:
        """Return it as a server behind the gateway."""
        return Upstream(self.url, self.model, key_file=self.key_file)

    async def problem(self, seconds: float) -> str:
        """Return why it does not serve its model; empty where it does."""
        try:
            async with asyncio.timeout(seconds):
                status, body = await self._listed()
        except TimeoutError:
            return f"it does not answer within {seconds:g} s"
        except (ExchangeError, ServeInputError) as error:
            return first_line(error)
        except ValueError as error:
            return f"it does not answer: {error}"
        if status in (401, 403):
            return f"it refuses the API key with HTTP {status}; --key-file names the file that holds one"
        if status != 200:
            return f"/v1/models answers HTTP {status}"
        try:
            names = [str(row["id"]) for row in json.loads(body)["data"]]
        except (ValueError, LookupError, TypeError, RecursionError):
            return "/v1/models gives no list of models"
        shown = ", ".join(names[:5])[:_MOST_LETTERS] or "none"
        return "" if self.model in names else f"it has no model {self.model!r}; it lists {shown}"

    async def _listed(self) -> tuple[int, bytes]:
        upstream = self.upstream
        key, client = upstream.secret(), await asyncio.to_thread(upstream.client)
        try:
            response = await client.request("GET", f"{upstream.address.prefix}/v1/models", key=key)
            return response.status, await whole(response, _MOST_BYTES)
        finally:
            client.close()

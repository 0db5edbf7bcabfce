"""Error of a request, as clients get it."""

from __future__ import annotations

from typing import Any

from paddock.openai.answers import refusal


class RequestError(Exception):
    """A request that cannot be served; `status` is HTTP's, `code` OpenAI's. `retry_s` is when to ask again."""

    def __init__(
        self, message: str, status: int = 400, code: str = "invalid_request_error", param: str = "", retry_s: int = 1
    ) -> None:
        super().__init__(message, status, code, param, retry_s)  # all of it, so that it comes whole from a replica
        self.message, self.status, self.code, self.param, self.retry_s = message, status, code, param, retry_s

    def __str__(self) -> str:
        return self.message

    def document(self) -> dict[str, Any]:
        """Return the error as OpenAI's clients read it."""
        return refusal(str(self), self.code, self.param)

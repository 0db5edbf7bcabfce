"""Event loop that runs what has nothing to wait for at once.

A program of the SDK is thousands of small coroutines. Here each runs in its caller up to the first thing that is not
there yet; only what is left then becomes a task. `asyncio.eager_task_factory` does the same from Python 3.12 on.

What depends on a component depends on the children that it has then; those it gets later are none of its
dependencies here, though with tasks they would be. So a component is whole before anything depends on it.
"""

from __future__ import annotations

import asyncio
import contextvars
import types
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from typing import Any


class EagerLoop(asyncio.SelectorEventLoop):
    """Runs coroutines at once as far as they come, and functions for an executor on its own thread."""

    get_debug = staticmethod(bool)
    """False, without a call of Python: each future asks for it when it is made."""

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> Any:
        """Return the result of a coroutine as a future: done already, or a task that runs the rest."""
        if not self.is_running():
            return super().create_task(coro, name=name, context=context)
        context = contextvars.copy_context() if context is None else context
        result = self.create_future()
        try:
            awaited = context.run(coro.send, None)
        except StopIteration as end:
            result.set_result(end.value)
        except asyncio.CancelledError:
            result.cancel()
        except Exception as error:
            result.set_exception(error)
        else:
            if awaited is not None:
                awaited._asyncio_future_blocking = False  # as a task leaves it
            return asyncio.Task(_rest(coro, awaited), loop=self, context=context)
        return result

    def run_in_executor(  # type: ignore[override]  # typeshed types it by the function
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Return the result of a function that would else run in a thread: the same order on every run."""
        result = self.create_future()
        try:
            result.set_result(func(*args))
        except Exception as error:
            result.set_exception(error)
        return result


@types.coroutine
def _rest(coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any], awaited: Any) -> Generator[Any, None, Any]:
    """Continue a coroutine that waits for `awaited`: a future, or None for the loop's next turn."""
    while True:
        failed: BaseException | None = None
        try:
            if awaited is not None:
                awaited._asyncio_future_blocking = True  # as Future.__await__ leaves it for the task
            yield awaited
        except BaseException as error:
            failed = error
        try:
            awaited = coro.send(None) if failed is None else coro.throw(failed)
        except StopIteration as end:
            return end.value

"""Client process: a plan on standard input, exchanges on standard output; it stops when its input ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import resource
import sys
import time
from dataclasses import asdict

from paddock.bench.load.client.messages import ClientUsage, Exchange, LoadPlan
from paddock.bench.load.client.sender import Sender


def main() -> None:
    """Send the load. The parent ends it early by closing the input, and so does the parent's own end."""
    plan = LoadPlan.from_line(sys.stdin.readline())
    _open_as_many_files_as_allowed()
    gc.freeze()
    with contextlib.suppress(BrokenPipeError):
        asyncio.run(_run(plan))


async def _run(plan: LoadPlan) -> None:
    loop = asyncio.get_running_loop()
    # A write that blocks would stop the clock of every request under way: asyncio's pipe buffers instead.
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    end_of_input = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(end_of_input), sys.stdin.buffer)

    def emit(exchange: Exchange) -> None:
        writer.write(exchange.line().encode() + b"\n")

    sender = Sender(plan, emit)  # reads the certificates of the system, which is not part of the load
    started, busy = time.monotonic(), time.process_time()
    load = asyncio.create_task(sender.run())
    stop = asyncio.create_task(end_of_input.read())
    await asyncio.wait((load, stop), return_when=asyncio.FIRST_COMPLETED)
    usage = ClientUsage(time.monotonic() - started, time.process_time() - busy)
    stop.cancel()
    load.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await load
    writer.write(json.dumps({"usage": asdict(usage)}).encode() + b"\n")
    await writer.drain()
    writer.close()
    await writer.wait_closed()


def _open_as_many_files_as_allowed() -> None:
    """Raise the limit of open files: each request under way is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 65536, hard))


if __name__ == "__main__":
    main()

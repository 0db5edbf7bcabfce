"""Export of the metrics to Prometheus: as a file for node_exporter, or over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from paddock import files
from paddock.gpu.errors import DriverHangs, GpuError, GpuInputError
from paddock.gpu.health.check import evaluate
from paddock.gpu.health.rules import NO_CONTEXT
from paddock.gpu.health.xid import Event, events
from paddock.gpu.host import kernel_log
from paddock.gpu.host.bounded import in_thread
from paddock.gpu.host.machine import Run, machine
from paddock.gpu.inventory import Sampler, inventory, sampler
from paddock.gpu.model import Gpu, Inventory
from paddock.gpu.monitoring.metrics import render

LOOPBACK = "127.0.0.1"
PORT = 9400
"""The port of DCGM exporter."""
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SLOW_INTERVAL = 60.0
"""Seconds between reads of the static data, of NVLinks and of the kernel log."""
_CLIENT_SECONDS = 10


class Exporter:
    """The metrics as text, read at most once in `min_age` seconds for any number of clients.

    `log` includes Xids from the kernel log.
    """

    def __init__(
        self,
        *,
        min_age: float = 1.0,
        log: bool = True,
        root: Path = Path("/"),
        run: Run | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._min_age, self._log = min_age, log
        self._root, self._run, self._clock = root, run, clock
        self._lock = threading.Lock()
        self._page: tuple[str, str | None] = "", None
        self._read_at = self._slow_at = float("-inf")
        self._sampler: Sampler | None = None
        self._slow: dict[int, Gpu] = {}
        self._xids: tuple[Event, ...] = ()
        self._last = Inventory("", machine(root), "none")
        self._hangs: DriverHangs | None = None

    def text(self) -> str:
        return self._refresh()[0]

    def problem(self) -> str | None:
        """Return the reason why there is no GPU to measure, or None."""
        return self._refresh()[1]

    def _refresh(self) -> tuple[str, str | None]:
        with self._lock:
            now = self._clock()
            if now - self._read_at >= self._min_age:
                self._read_at = now
                current = self._answered(now)
                context = replace(NO_CONTEXT, uptime=kernel_log.uptime(self._root))
                text = render(current, evaluate(current, self._xids, context), self._xids)
                self._page = text, None if current.gpus else current.reason or "there is no GPU"
            return self._page

    def _answered(self, now: float) -> Inventory:
        """Read the GPUs. While the driver hangs they are listed as unreadable, and it is not called again."""
        if self._hangs is None or self._hangs.thread is None or not self._hangs.thread.is_alive():
            try:
                self._last = in_thread(lambda: self._read(now))
                return self._last
            except DriverHangs as error:
                self._hangs = error
        reason = str(self._hangs).partition("\n")[0]
        gpus = [Gpu(gpu.index, gpu.uuid, gpu.name, gpu.vendor, "unreadable", reason) for gpu in self._last.gpus]
        return replace(self._last, gpus=tuple(gpus), reason=reason)

    def _read(self, now: float) -> Inventory:
        if self._sampler is None or now - self._slow_at >= _SLOW_INTERVAL:
            self._slow_at = now
            slow_inventory = inventory(topology=True, root=self._root)
            self._slow = {gpu.index: gpu for gpu in slow_inventory.gpus}
            self._sampler = sampler(root=self._root)
            if self._log:
                self._xids = events(kernel_log.read(root=self._root, run=self._run).lines)
        try:
            current = self._sampler.read()
        except GpuError as error:
            last_inventory, self._sampler = self._sampler.first, None
            return replace(last_inventory, gpus=(), reason=str(error))
        return replace(current, gpus=tuple(self._with_links(gpu) for gpu in current.gpus))

    def _with_links(self, gpu: Gpu) -> Gpu:
        """Add the errors of NVLinks and the width of the PCIe link, which samples lack."""
        slow = self._slow.get(gpu.index)
        if slow is None or slow.uuid != gpu.uuid or gpu.state != "ok":
            return gpu
        pcie = gpu.pcie if gpu.pcie.width else replace(slow.pcie, replays=gpu.pcie.replays)
        return replace(gpu, nvlinks=slow.nvlinks, pcie=pcie)


def write(path: Path, text: str) -> None:
    """Replace the file in one step: node_exporter must never read a partial file. Raises GpuInputError."""
    if path.suffix != ".prom":
        raise GpuInputError(
            f"{path} is not a file that node_exporter reads\n    expected: a name that ends in .prom"
            f"\n    fix: {path.with_suffix('.prom')}"
        )
    try:
        files.write(path, text, 0o644, sync=False)  # node_exporter runs as nobody
    except OSError as error:
        raise GpuInputError(
            f"cannot write {path}: {error.strerror}\n    expected: a folder that this user may write to"
            "\n    fix: the folder of node_exporter's --collector.textfile.directory"
        ) from None


class Server(ThreadingHTTPServer):
    """HTTP server of `/metrics`, and of `/healthz`, which fails without a GPU to measure.

    It has neither password nor TLS: on an address other than loopback, every client that reaches it can read it.
    Raises GpuInputError if it cannot listen.
    """

    daemon_threads = True

    def __init__(self, exporter: Exporter, host: str = LOOPBACK, port: int = PORT) -> None:
        self.exporter = exporter
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise GpuInputError(
                f"cannot listen on {host}:{port}: {why}\n    expected: a free port of this machine"
                "\n    fix: --port 0 takes any that is free"
            ) from None

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_port}/metrics"


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_SECONDS
    server_version, sys_version = "paddock", ""
    server: Server

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._respond(200, self.server.exporter.text(), _CONTENT_TYPE)
            case "/healthz":
                problem = self.server.exporter.problem()
                self._respond(503 if problem else 200, f"{problem or 'ok'}\n")
            case _:
                self._respond(404, "there are /metrics and /healthz\n")

    do_HEAD = do_GET

    def _respond(self, status: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(ConnectionError):
                self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a scrape every few seconds is not an event."""

"""Run a program on GPUs leased until it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath

from paddock.errors import program
from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.leases.allocation import InventoryReader, environment, obtain
from paddock.gpu.leases.manager import Grant, Leases
from paddock.gpu.leases.request import Request

_FORWARDED = frozenset(
    {
        signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
    }
)  # fmt: skip
_WAITED_FOR = _FORWARDED | {signal.SIGCHLD}
_BLOCKED = _WAITED_FOR | {signal.SIGTTOU}
"""SIGTTOU too, which would stop a background process that passes on the terminal."""
_POLL_SECONDS = 1.0
"""Seconds between checks of the program, in case no signal arrives."""
_TTL, _RENEWED_EVERY = 120.0, 30.0
"""Seconds. From outside a container this process is not visible, so its lease is renewed regularly."""
_GO = b"1"

Notify = Callable[[str], None]


def run(
    command: Sequence[str],
    request: Request,
    *,
    wait: float = 0,
    priority: int = 0,
    leases: Leases | None = None,
    read_inventory: InventoryReader | None = None,
    environ: Mapping[str, str] = os.environ,
    notify: Notify = lambda text: print(text, file=sys.stderr),  # noqa: T201 (next to the program's own output)
) -> int:
    """Return the program's exit status, 128 plus the signal's number where one ended it. The lease is always released.

    The program runs in its own process group, which gets the signals that this process gets, and its terminal. Killing
    this process leaves the program its GPUs. Raises NoneFree and GpuInputError; then nothing has run.
    """
    _check(command, environ)
    leases = leases or Leases(environ=environ)
    contained = not leases.host.sees_driver_pids
    grant = obtain(
        leases,
        request,
        read_inventory,
        owners=(leases.host.owner(os.getpid()),),
        ttl=_TTL if contained else None,
        wait=wait,
        priority=priority,
        command=displayed_command(command),
    )
    with _blocked(_BLOCKED) as mask:
        try:
            for note in grant.choice.notes:
                notify(note)
            terminal = _Terminal()
            child = _start(command, _variables(grant, environ), leases, grant, mask, terminal)
        except BaseException:
            _release(leases, grant, notify)
            raise
        # From here on the child is an owner: whatever happens to this process, the lease lasts as long as it does.
        renew = (lambda: leases.renew(grant.lease.id)) if contained else None
        status = _supervise(child, terminal, renew, notify)
        _release(leases, grant, notify)
    return status


def displayed_command(command: Sequence[str]) -> str:
    """Return the program and its script, for display to others: further arguments may hold secrets."""
    words = [PurePath(command[0]).name, *command[1:2]]
    return " ".join(word for word in words if not word.startswith("-"))[:100]


def _check(command: Sequence[str], environ: Mapping[str, str]) -> None:
    if not command:
        raise GpuInputError(
            f"no program to run\n    expected: one after `--`\n    fix: {program()} gpu.run --gpus 1 -- python train.py"
        )
    if shutil.which(command[0], path=environ.get("PATH")) is None:
        raise GpuInputError(
            f"there is no program {command[0]!r}\n    expected: a file that can be run, on PATH or with its path"
            "\n    fix: see how it is written"
        )


def _variables(grant: Grant, environ: Mapping[str, str]) -> dict[str, str]:
    variables = environment(grant)
    return {name: value for name, value in {**environ, **variables}.items() if value is not None}


def _start(
    command: Sequence[str],
    environ: Mapping[str, str],
    leases: Leases,
    grant: Grant,
    mask: set[signal.Signals],
    terminal: _Terminal,
) -> int:
    """Start the program and return its pid, which becomes an owner of the lease before the program runs."""
    go_read, go_write = os.pipe()
    failed_read, failed_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _run_child(command, environ, go_read, go_write, failed_write, mask, terminal)
    os.close(go_read)
    os.close(failed_write)
    with contextlib.suppress(OSError):  # the child does so too; the first one wins
        os.setpgid(child, child)
    try:
        leases.watch(grant.lease.id, child)
        os.write(go_write, _GO)
    except BaseException:
        os.close(go_write)
        os.waitpid(child, 0)
        raise
    os.close(go_write)
    failed = os.read(failed_read, 16)
    os.close(failed_read)
    if failed:
        os.waitpid(child, 0)
        terminal.take()
        raise GpuInputError(
            f"cannot run {command[0]}: {os.strerror(int(failed))}\n    expected: a program for this machine"
            "\n    fix: a script needs a first line that names its interpreter"
        )
    return child


def _run_child(
    command: Sequence[str],
    environ: Mapping[str, str],
    go_read: int,
    go_write: int,
    failed: int,
    mask: set[signal.Signals],
    terminal: _Terminal,
) -> None:
    """Become the program, in the child. Never returns."""
    try:
        os.close(go_write)
        os.setpgid(0, 0)
        if os.read(go_read, 1) == _GO:
            terminal.give(os.getpid())
            for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(ignored_by_python, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.execvpe(command[0], list(command), dict(environ))
    except OSError as error:
        os.write(failed, str(error.errno).encode())
    finally:
        os._exit(127)


def _supervise(child: int, terminal: _Terminal, renew: Callable[[], object] | None, notify: Notify) -> int:
    renewed = time.monotonic()
    while True:
        received = signal.sigtimedwait(_WAITED_FOR, _POLL_SECONDS)
        if received and received.si_signo != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, received.si_signo)
        # After any wake-up: SIGCHLD is lost where another thread of this process, which does not block it, takes it.
        pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            terminal.stop_with(child)
        elif pid:
            terminal.take()
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if renew and time.monotonic() - renewed >= _RENEWED_EVERY:
            renewed = time.monotonic()
            try:
                renew()
            except GpuError as error:
                notify(str(error))


class _Terminal:
    """Terminal of this process: its keys signal the foreground group, and only that group may read."""

    def __init__(self) -> None:
        self._ours = os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()

    def give(self, group: int) -> None:
        if self._ours:
            with contextlib.suppress(OSError):  # hung up
                os.tcsetpgrp(0, group)

    def take(self) -> None:
        self.give(os.getpgrp())

    def stop_with(self, child: int) -> None:
        """Ctrl-Z: the shell that waits for this process must see it stop, and its `fg` must reach the child."""
        if not self._ours:
            return
        self.take()
        os.kill(0, signal.SIGTSTP)
        if os.tcgetpgrp(0) == os.getpgrp():
            self.give(child)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGCONT)


def _release(leases: Leases, grant: Grant, notify: Notify) -> None:
    try:
        leases.release(grant.lease.id)
    except GpuInputError:
        pass  # already released
    except GpuError as error:
        notify(str(error))  # its owners have ended, so the next who asks gets the GPUs


@contextlib.contextmanager
def _blocked(signals: frozenset[signal.Signals]) -> Iterator[set[signal.Signals]]:
    """Block the signals for sigtimedwait. Yields the previous mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    former = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignoring it would discard the child's exit status
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        if former is not None:  # None: set by no Python code
            signal.signal(signal.SIGCHLD, former)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

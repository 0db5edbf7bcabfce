"""Child processes: read, ended with all that they started, and gone when their parent is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from paddock.children import Child, Children, Stopped
from paddock.process import session_members
from tests.support.waiting import until

_ROOT = Path(__file__).parents[1]
_WATCHES = (
    f"import sys; sys.path.insert(0, {str(_ROOT)!r}); import subprocess, time; from paddock import children;"
    " grandchild = subprocess.Popen(['sleep', '600']);"
    " print(children.next_line(), flush=True); children.end_with_parent(); time.sleep(600)"
)
_SLEEPS = "import time; print('ready', flush=True); time.sleep(600)"
_LEAVES_ONE_BEHIND = (
    "import os, subprocess;"
    " subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); os.abort()"
)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_lines_errors_and_code_of_a_child_are_read() -> None:
    with Children().started(python("import sys; print(input()); sys.exit('no device')"), os.environ) as child:
        child.send("hello")
        assert list(child.lines(20)) == ["hello\n"]
        assert (child.code(20), child.last_words()) == (1, "no device")
        assert child.line(0) is None


def test_a_child_that_says_nothing_is_a_timeout() -> None:
    with Children().started(["sleep", "600"], os.environ) as child, pytest.raises(TimeoutError):
        list(child.lines(0.05))
    assert session_members(child.pid) == []


def test_an_interrupt_ends_a_child() -> None:
    seen: list[Child] = []

    def interrupted() -> None:
        with Children().started(python(_SLEEPS), os.environ) as child:
            seen.append(child)
            child.line(20)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert session_members(seen[0].pid) == []


def test_what_a_crashed_child_started_ends_too() -> None:
    with Children().started(python(_LEAVES_ONE_BEHIND), os.environ) as child:
        assert list(child.lines(20)) == []
        assert child.code(20) == -signal.SIGABRT
        until(lambda: session_members(child.pid) == [])


def test_stop_ends_children_of_other_threads_and_starts_no_more() -> None:
    children, codes = Children(), []

    def work() -> None:
        with children.started(python(_SLEEPS), os.environ) as child:
            child.line(20)
            ready.set()
            list(child.lines(60))
            codes.append(child.code())

    ready, thread = threading.Event(), threading.Thread(target=work)
    thread.start()
    assert ready.wait(20)
    children.stop()
    thread.join(20)
    assert codes == [-signal.SIGKILL]
    with pytest.raises(Stopped), children.started(["true"], os.environ):
        pass


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="no/program"), Children().started(["/no/program"], os.environ):
        pass


def test_children_end_when_their_parent_is_killed() -> None:
    parent = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r}); import os, time; from paddock.children import Child;"
        f" child = Child([sys.executable, '-c', {_WATCHES!r}], os.environ); child.send('go'); child.line(20);"
        " print(child.pid, flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(python(parent), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert len(session_members(pid)) == 2  # with its own child
    process.kill()
    process.wait()
    process.stdout.close()
    until(lambda: session_members(pid) == [])

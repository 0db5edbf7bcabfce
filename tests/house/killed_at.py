"""Runs `inv` until it touches the disk or starts a program for the n-th time; then the process is killed."""

import os
import runpy
import signal
import sys

STEPS = {
    "open",
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "subprocess.Popen",
}
"""Audit events; reading is left out below."""

inv, last, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
steps = 0


def write_steps() -> None:
    with open(log, "w", encoding="utf-8") as f:
        f.write(str(steps))


def count(event: str, arguments: tuple[object, ...]) -> None:
    global steps
    if event == "os.exec":
        write_steps()
    if event not in STEPS or (event == "open" and arguments[1] not in ("w", "wb", "a")):
        return
    if str(arguments[0]) == log:
        return
    steps += 1
    if steps == last:
        os.kill(os.getpid(), signal.SIGKILL)


sys.argv = sys.argv[4:]
sys.argv.insert(0, inv)
sys.addaudithook(count)
runpy.run_path(inv, run_name="__main__")

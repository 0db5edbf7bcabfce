"""BuildKit's plain progress, as three ages of the client print it, read back into steps."""

from __future__ import annotations

import pytest

from paddock.images.docker.steps import Steps

BUILT_IN = """\
#1 [internal] load build definition from Dockerfile
#1 sha256:44980916282fb10aab72314a3237525cd83f3f2fd9b5aafe0ae337194fb824e8
#1 transferring dockerfile: 230B 0.0s done
#1 DONE 0.0s

#4 [base 1/2] FROM docker.io/library/debian:bookworm
#4 sha256:05f32d67858ffb52bb32da431fb640a98a9e3bfcf9ca5c38df5136502e6cb533
#4 CACHED

#7 importing cache manifest from localhost:5000/runner:gone
#7 ERROR: localhost:5000/runner:gone: not found

#5 [base 2/2] RUN echo hi
#5 sha256:3d66e5e6413ef248b743ace46d49e34fe162a4f5bf98875b7ffdb834794533f4
#5 CACHED

#8 [two 2/2] RUN make
#8 sha256:44f9df961f0372b89f86a9ec6ac4491d0f4240b83632b8c22bc3af134651ced3
#8 0.070 cc -c a.c
#8 0.170 DONE 1.2s
#8 0.181 ERROR: said the compiler
#8 ERROR: executor failed running [/bin/sh -c make]: exit code: 3
------
 > [two 2/2] RUN make:
------
executor failed running [/bin/sh -c make]: exit code: 3
"""

PLUGIN = """\
#0 building with "default" instance using docker driver

#5 [internal] load build context
#5 transferring context: 32B done
#5 DONE 0.0s

#6 [base 2/2] RUN echo hi
#6 CACHED

#7 [linux/amd64 one 1/2] COPY --chmod=755 Dockerfile /x
#7 ...

#8 [linux/amd64 two 2/2] RUN make
#8 0.084 cc -c a.c
#8 0.170 DONE 1.2s

#7 [linux/amd64 one 1/2] COPY --chmod=755 Dockerfile /x
#7 CANCELED

#8 [linux/amd64 two 2/2] RUN make
#8 0.181 ERROR: said the compiler
#8 ERROR: process "/bin/sh -c make" did not complete successfully: exit code: 3
------
Dockerfile:4
--------------------
   4 | >>> RUN make
--------------------
ERROR: failed to build: failed to solve: process "/bin/sh -c make" did not complete successfully: exit code: 3
"""


def read(text: str) -> Steps:
    steps = Steps()
    for line in text.splitlines():
        steps.read(line)
    return steps


@pytest.mark.parametrize("text", [BUILT_IN, PLUGIN], ids=["client 20.10", "buildx"])
def test_a_failed_step_is_distinguished_from_similar_program_output(text: str) -> None:
    failed = read(text).failed

    assert (failed.command, failed.exit_code) == ("RUN make", 3)
    assert list(failed.output) == ["cc -c a.c", "DONE 1.2s", "ERROR: said the compiler"]


def test_steps_are_counted_without_bases_and_internal_steps() -> None:
    states = [(step.place, step.state) for step in read(BUILT_IN).layers]

    assert states == [("[base 2/2]", "cached"), ("[two 2/2]", "failed")]
    assert [(step.place, step.state) for step in read(PLUGIN).layers][1:] == [
        ("[linux/amd64 one 1/2]", "canceled"),
        ("[linux/amd64 two 2/2]", "failed"),
    ]


def test_the_last_lines_are_kept_without_colours_and_progress_bars() -> None:
    steps = Steps()
    steps.read("#9 [2/2] RUN pip install torch")
    for number in range(100):
        steps.read(f"#9 {number}.5 \x1b[32mline {number}\x1b[0m")
    steps.read("#9 101.0  10%\r  50%\rall of it\r")

    (step,) = steps.running
    assert len(step.output) == 20
    assert list(step.output)[-2:] == ["line 99", "all of it"]


def test_a_likely_cause_is_kept_despite_much_later_output() -> None:
    steps = Steps()
    steps.read("#9 [2/2] RUN make")
    causes = ["gcc: fatal", "E: Unable to locate package", "ld: cannot find -lcuda", "paddock: cannot download",
              "ValueError: 3", "dpkg: Errors were encountered"]  # fmt: skip
    noise = ["Unpacking liberror-perl", "cc -Werror a.c", "NOTE: 1", "error in the tail"]
    many = [f"error {number}" for number in range(9)]
    lines = [*causes, *noise[:3], causes[0], *many, "error in the tail", *(f"line {number}" for number in range(50))]
    for line in [*lines, "error in the tail"]:
        steps.read(f"#9 0.1 {line}")

    (step,) = steps.running
    assert step.causes == [*causes, *many[:4]]
    assert step.excerpt == [*step.causes, "…", *(f"line {number}" for number in range(31, 50)), "error in the tail"]


def test_a_likely_cause_is_shown_once() -> None:
    steps = Steps()
    steps.read("#9 [2/2] RUN make")
    for line in ["fatal: x", *(f"line {number}" for number in range(30)), "fatal: x"]:
        steps.read(f"#9 0.1 {line}")

    (step,) = steps.running
    assert step.excerpt == [*(f"line {number}" for number in range(11, 30)), "fatal: x"]


def test_a_cache_that_cannot_be_read_is_no_failure() -> None:
    assert read(BUILT_IN.partition("#8 ")[0]).failed is None

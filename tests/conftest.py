"""Isolation of every test: no AWS account, no user's settings and no caller's folder leak into it."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from hypothesis import settings

from tests.support import counterparts, record
from tests.support.explore import EXPLORING
from tests.support.nvml import library

ROOT = Path(__file__).resolve().parent.parent


# A job in a shell's background starts with Ctrl-C ignored, and every program that a test interrupts would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of processes import the same packages, which each of them would compile anew.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False

# The same examples in each run, and as long as each of them takes: a run tells of the change that it is for, whatever
# the machine's load. A run that explores looks for new ones.
settings.register_profile("paddock", deadline=None, derandomize=not EXPLORING)
settings.load_profile("paddock")

# Each core has a worker of its own: threads of torch in each of them would only wait for one another.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Read before the environment is cleaned below.
REFERENCE_DATA = Path(os.environ.get("PADDOCK_REFERENCE_DATA") or ROOT.parent / "shared/data")


TODAY = "2026-11-23"
"""The day that these tests are of. Facts age and supports end: what a test says of a day holds on each later one."""
os.environ["PADDOCK_TODAY"] = TODAY


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--not-passed", action="store_true", help="leave out what passed in the last run, unless a file has changed"
    )
    parser.addoption(
        "--within", type=float, metavar="SECONDS", help="begin no test after so long; the end lists how many are left"
    )


END = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    """Note when the time is over."""
    if within := config.getoption("--within"):
        config.stash[END] = getattr(config, "workerinput", {}).get("end", time.time() + within)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker when the time is over: it began later."""
    if END in node.config.stash:
        node.workerinput["end"] = node.config.stash[END]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test when the time is over."""
    if time.time() > item.config.stash.get(END, float("inf")):
        pytest.skip("the time of --within is over")


# The tests of these folders look at the same graphs of fleets, each made once in a process that has imported the SDKs.
GRAPHS = tuple(f"{ROOT / 'tests' / room}{os.sep}" for room in ("plan", "infra", "policy"))
ALONE = ("xdist_group", "e2e", "explore")
# The groups that take longest. Begun last, one alone would keep the run waiting.
LONGEST = (
    *("clone", "operate", "ray", "applied", "jobs", "runner-image", "slurm-image", "interrupted", "crds", "terraform"),
    *("cluster", "slurm", "story", "stacks"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what passed before; give the rest its worker and its place."""
    for item in items:
        if str(item.path).startswith(GRAPHS) and not any(map(item.get_closest_marker, ALONE)):
            item.add_marker(pytest.mark.xdist_group("graphs"))
    if config.getoption("--not-passed") and (passed := record.passed_before(config)):
        before = {item for item in items if record.names(item) & passed}
        config.hook.pytest_deselected(items=list(before))
        items[:] = [item for item in items if item not in before]
    items.sort(key=_turn)


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what was collected, and come less often: a tenth of the run's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _turn(item: pytest.Item) -> int:
    """Return when a test's turn is: the longest groups, what meets engines, the longest of the others, the rest."""
    mark = item.get_closest_marker("xdist_group")
    group = mark.args[0] if mark else ""
    if group in LONGEST:
        return LONGEST.index(group)
    return len(LONGEST) + (0 if item.get_closest_marker("e2e") else 1 if group == "graphs" else 2)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what passed, where the reports of all are. A test that skipped and could have run is a fault."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    stats = {name: {report.nodeid for report in reporter.stats.get(name, ())} for name in ("passed", "failed", "error")}
    if not session.config.getoption("--not-passed"):
        record.keep(session.config, stats["passed"] - stats["error"])
    none_began = session.config.getoption("--within") and not any(stats.values())
    if none_began or any(map(counterparts.is_here, _skipped(reporter))):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List which counterparts were absent, and what each leaves unproven."""
    lines = list(counterparts.summary(_skipped(terminalreporter)))
    config = terminalreporter.config
    for mark, what in (("e2e", "real engines"), ("explore", "chance, faults and PyTorch at length")):
        if f"not {mark}" in config.getoption("markexpr"):
            lines.append(f"{what} (not selected): what `./inv test --{mark}` looks at")
    if lines:
        terminalreporter.section("absent here, so unproven", sep="-")
        for line in lines:
            terminalreporter.line(line)
    if wrong := sorted({reason for reason in _skipped(terminalreporter) if counterparts.is_here(reason)}):
        terminalreporter.section("skipped, and yet it is here", sep="-")
        for reason in wrong:
            terminalreporter.line(reason)
    if config.getoption("--not-passed") and (passed := record.passed_before(config)):
        terminalreporter.line(f"{len(passed)} tests passed in the last `./inv test` of these files: not run again")


def _skipped(reporter: pytest.TerminalReporter) -> list[str]:
    """Return the reason of each skip."""
    return [report.longrepr[2].removeprefix("Skipped: ") for report in reporter.stats.get("skipped", ())]


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """Recordings of real components, values of real charts, real CRDs: large, other projects', not in the tree."""
    if not REFERENCE_DATA.is_dir():
        pytest.skip(f"no reference data in {REFERENCE_DATA}; PADDOCK_REFERENCE_DATA names another folder")
    return REFERENCE_DATA


_KEPT = {"AWS_CA_BUNDLE", "PADDOCK_LAB_BIN", "PADDOCK_LANGHOST_BIN", "PADDOCK_TODAY"}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # of the terminal that the suite was started in
    for name in os.environ:
        if name.startswith(("AWS_", "PULUMI_", "PADDOCK_")) and name not in _KEPT:
            monkeypatch.delenv(name)
    # A chain of credentials that ends nowhere: a forgotten stub fails at once and cannot reach an account.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a made-up driver library for LD_LIBRARY_PATH of a program; libnvml.c says what it reads."""
    compiler = which("cc") or which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on PATH for the made-up driver library")
    return library(tmp_path_factory.mktemp("nvml"), compiler).parent

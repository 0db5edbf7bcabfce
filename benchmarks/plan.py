#!/usr/bin/env python3
"""Duration of planning, as ratios of runs side by side on this machine, so that they mean something on another.

    .venv/bin/python benchmarks/plan.py [--runs N]

Prints one JSON document: each measurement with the median ratio, the range, and the goal it is held against.
Pairs run in turn (A B A B), so that a machine that slows down slows both.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from side_by_side import ROOT, paired, process, report

# The SDK modules that the program uses, loaded for good: the packages alone only make placeholders.
SDKS = """
import pulumi, pulumi_aws as aws, pulumi_eks as eks, pulumi_kubernetes as k8s
for module in (aws.autoscaling, aws.cloudwatch, aws.ec2, aws.ecr, aws.eks, aws.iam, aws.kms, eks,
               k8s.core.v1, k8s.helm.v3, k8s.networking.v1, k8s.batch.v1):
    getattr(module, "__all__", None)
"""

PLAN = """
import gc, sys
gc.disable()
from pathlib import Path
from paddock.plan import command
sys.stdout = open("/dev/null", "w")
command.run(Path(sys.argv[1]), sys.argv[2], command.Options())
"""


BEYOND = f"""
import gc, time
gc.disable()
{SDKS}
started = time.process_time()
{PLAN.replace("import gc, sys", "import sys").replace("gc.disable()", "")}
print(time.process_time() - started, file=sys.__stdout__)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="counted runs of each, after one that is not")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        big = large_fleet(Path(folder))
        huge = large_fleet(Path(folder) / "huge", pools=100, runners=500)
        results = [
            paired("inv plan of dev / importing the Pulumi SDKs it uses", 3.0, runs,
                   process("-c", PLAN, str(ROOT), "dev"), process("-c", SDKS)),
            paired("inv plan of 60 runners on 30 pools / of dev", 6.0, runs,
                   process("-c", PLAN, str(big), "large"), process("-c", PLAN, str(ROOT), "dev")),
            beyond_startup(runs, huge),
            paired("inv --list / python -c 'import invoke'", 2.0, runs,
                   process("-m", "paddock", "--list"), process("-c", "import invoke")),
            fits(runs),
        ]  # fmt: skip
    report(results)


def beyond_startup(runs: int, huge: Path) -> dict[str, object]:
    """Return CPU of the plan of 500 runners over that of dev, both without what importing the SDKs takes.

    Each process imports the SDKs, reads its own clock, and plans: the difference of two processes would be a small
    number between two large and noisy ones.
    """
    dev, large = beyond(str(ROOT), "dev"), beyond(str(huge), "large")
    return paired(
        "CPU of inv plan of 500 runners on 100 pools / of dev, both beyond importing the Pulumi SDKs",
        4.0,
        runs,
        large,
        dev,
    )


def beyond(*arguments: str) -> Callable[[], float]:
    """Return a run of a plan that gives the CPU seconds which it took after the import of the SDKs."""

    def run() -> float:
        command = [sys.executable, "-c", BEYOND, *arguments]
        return float(subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout)

    return run


def fits(runs: int) -> dict[str, object]:
    """Return a thousand fits against one graph run, both warm in this process."""
    from paddock.fleet import load
    from paddock.plan import fit
    from paddock.plan.engine.program import plan_graph

    stack = load(ROOT, "prod")

    def solve() -> float:
        start, solved = time.perf_counter(), 0
        while solved < 1000:
            solved += len(fit.fit(stack.fleet))
        return time.perf_counter() - start

    def graph() -> float:
        start = time.perf_counter()
        plan_graph(stack)
        return time.perf_counter() - start

    return paired("1,000 fits / one graph run of prod", 1.0, runs, solve, graph)


def large_fleet(folder: Path, pools: int = 30, runners: int = 60) -> Path:
    """Write a stack named large. Its pools are of three kinds."""
    folder.mkdir(exist_ok=True)
    (folder / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
    types = (["g4dn.xlarge", "g4dn.2xlarge"], ["g5.xlarge", "g5.2xlarge"], ["g6.12xlarge"])
    fleet = {
        "github": {"url": "https://github.com/acme", "app": {"id": "1", "installation": "2"}},
        "network": {"cidr": "10.0.0.0/16"},
        "pools": {f"pool-{n}": {"instances": types[n % 3], "nodes": {"max": 3}} for n in range(pools)},
        "runners": {f"runner-{n}": {"pool": f"pool-{n % pools}", "max": 2} for n in range(runners)},
    }
    config = {"config": {"aws:region": "us-west-2", "paddock:fleet": fleet}}
    (folder / "Pulumi.large.yaml").write_text(json.dumps(config))  # JSON is YAML
    return folder


if __name__ == "__main__":
    main()

"""Prometheus' own judge of rules: what fires on given series, and whether an expression parses."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

PROMTOOL = shutil.which("promtool")


def _run(folder: Path, *arguments: str) -> str:
    """Return what promtool objects to; empty where it is content."""
    result = subprocess.run(
        [str(PROMTOOL), *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    return "" if result.returncode == 0 else result.stdout + result.stderr


Check = tuple[str, str, Iterable[Mapping[str, str]]]
"""An alert, a time, and the labels with which it fires then."""


def firing(rules: Mapping[str, Any], series: Mapping[str, str], *checks: Check, interval: str = "1m") -> str:
    """Return promtool's objection to alerts firing with exactly these labels at their times; empty where none."""
    queries = []
    for alert, at, expected in checks:
        samples = []
        for labels in expected:
            pairs = {"alertname": alert, "alertstate": "firing", **labels}
            samples.append({"labels": "{" + ", ".join(f'{k}="{v}"' for k, v in pairs.items()) + "}", "value": 1})
        query = f'sum without (severity) (ALERTS{{alertname="{alert}", alertstate="firing"}})'
        queries.append({"expr": query, "eval_time": at, "exp_samples": samples})
    test = {
        "interval": interval,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": queries,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rules.yaml").write_text(yaml.safe_dump(dict(rules)))
        document = {"rule_files": ["rules.yaml"], "evaluation_interval": interval, "tests": [test]}
        (folder / "tests.yaml").write_text(yaml.safe_dump(document))
        return _run(folder, "test", "rules", "tests.yaml")


def evaluates(series: Mapping[str, str], expression: str, at: str, expected: Mapping[str, float]) -> str:
    """Return promtool's objection to an expression having exactly these values by label set; empty where none."""
    samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": at, "exp_samples": samples}],
    }
    with tempfile.TemporaryDirectory() as name:
        document = {"evaluation_interval": "1m", "tests": [test]}
        (Path(name) / "tests.yaml").write_text(yaml.safe_dump(document))
        return _run(Path(name), "test", "rules", "tests.yaml")


def objections(rules: Mapping[str, Any]) -> str:
    """Return what promtool has against a rule file; empty where nothing."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "rules.yaml").write_text(yaml.safe_dump(dict(rules)))
        return _run(Path(name), "check", "rules", "--lint=none", "rules.yaml")


def config_objections(folder: Path, name: str) -> str:
    """Return what promtool has against a configuration and the rule files next to it; empty where nothing."""
    return _run(folder, "check", "config", "--lint=none", name)

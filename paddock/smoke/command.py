"""The smoke test on the console: flags, progress, output and exit code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from paddock import process, terminal
from paddock.errors import printable
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.parameters import Smoke
from paddock.smoke.runner.run import Options, run
from paddock.smoke.verdict import baselines, text
from paddock.smoke.verdict.documents import document, junit
from paddock.smoke.verdict.model import StageResult, Tier
from paddock.terminal import JsonOutput, output_path

_TIERS: dict[int, Tier] = {1: 1, 2: 2, 3: 3}


def smoke(flags: Mapping[str, Any]) -> int:
    """Test this machine, print the verdict and return the exit code. Raises SmokeInputError, GpuError, OutputError."""
    parameters = Smoke.from_flags(flags)
    folder = baselines.default_folder()
    options = Options(
        _tier(parameters.tier),
        parameters.gpus,
        parameters.expect or None,
        _soak(parameters.soak),
        folder,
        parameters.cpu,
        parameters.python,
    )
    json, junit_file = JsonOutput.parse(parameters.json), output_path("junit", parameters.junit)
    with process.sigterm_as_interrupt():
        report = run(options, (lambda _: None) if json.replaces_text else _show)
    if not json.replaces_text:
        sys.stdout.writelines(f"{printable(line)}\n" for line in text.summary(report))
    json.write(document(report))
    if junit_file is not None:
        terminal.write(junit_file, junit(report))
    if parameters.learn:
        learned = baselines.learn(folder, report)
        sys.stderr.writelines(f"learned {path}\n" for path in learned)
        if not learned:
            sys.stderr.write("learned nothing: only devices that pass a stage of tier 2 are kept\n")
    if parameters.must_run and report.untested:
        sys.stderr.write("--must-run: it fails, because a stage could not run\n")
    return report.exit_code(strict=parameters.strict, must_run=parameters.must_run)


def _show(result: StageResult) -> None:
    sys.stdout.write(f"{printable(text.line(result))}\n")
    sys.stdout.flush()


def _tier(tier: int) -> Tier:
    try:
        return _TIERS[tier]
    except KeyError:
        raise SmokeInputError(
            f"--tier: there is no tier {tier}\n"
            "    expected: 1 (a second), 2 (under a minute) or 3 (ten minutes and more)"
        ) from None


def _soak(seconds: float) -> float:
    if 1 <= seconds <= 86400:
        return seconds
    raise SmokeInputError(f"--soak: {seconds:g} s makes no sense\n    expected: 1s to 24h")

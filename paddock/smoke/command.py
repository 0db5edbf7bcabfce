"""The smoke test on the console: flags, progress, output and exit code."""

from __future__ import annotations

import sys
from pathlib import Path

from paddock import process, terminal
from paddock.errors import printable
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.runner.run import Options, run
from paddock.smoke.verdict import baselines, text
from paddock.smoke.verdict.documents import document, junit
from paddock.smoke.verdict.model import StageResult, Tier

STANDARD_OUTPUT = Path("-")
_TIERS: dict[int, Tier] = {1: 1, 2: 2, 3: 3}


def smoke(
    *,
    tier: int = 2,
    gpus: str = "",
    expect: str | None = None,
    soak: float = 600.0,
    learn: bool = False,
    strict: bool = False,
    python: str = "",
    json: Path | None = None,
    junit_file: Path | None = None,
) -> int:
    """Test this machine, print the verdict and return the exit code. Raises SmokeInputError, GpuError, OutputError."""
    folder = baselines.default_folder()
    options = Options(_tier(tier), _names(gpus), expect or None, _soak(soak), folder, python)
    _check_writable(json, junit_file)
    quiet = json == STANDARD_OUTPUT
    with process.sigterm_as_interrupt():
        report = run(options, (lambda _: None) if quiet else _show)
    if quiet:
        terminal.print_json(document(report))
    else:
        sys.stdout.writelines(f"{printable(line)}\n" for line in text.summary(report))
    if json is not None and not quiet:
        terminal.write(json, terminal.json_text(document(report)))
    if junit_file is not None:
        terminal.write(junit_file, junit(report))
    if learn:
        learned = baselines.learn(folder, report)
        sys.stderr.writelines(f"learned {path}\n" for path in learned)
        if not learned:
            sys.stderr.write("learned nothing: only devices that pass a stage of tier 2 are kept\n")
    return report.exit_code(strict=strict)


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
    raise SmokeInputError(f"--soak: {seconds:g} makes no sense\n    expected: seconds, 1 to 86400")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _check_writable(*paths: Path | None) -> None:
    """Raise before the test what would otherwise be found out after it."""
    for path in paths:
        if path is not None and path != STANDARD_OUTPUT and not path.parent.is_dir():
            raise terminal.OutputError(
                f"cannot write {path}: there is no folder {path.parent}\n    fix: choose a folder that exists"
            )

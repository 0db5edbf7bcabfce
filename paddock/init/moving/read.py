"""Runners in a file of another program, which is told by what it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from paddock.console.output import BadFlag
from paddock.init.moving import scale_set, summerwind, terraform
from paddock.init.moving.model import Fleet, Found, Note
from paddock.init.moving.pods import items, mapping

MAX_BYTES = 5 * 2**20
EXPECTED = (
    "RunnerDeployments and HorizontalRunnerAutoscalers (YAML), values of ARC's gha-runner-scale-set (YAML), or the"
    " module terraform-aws-github-runner (.tf.json, `terraform show -json`, its YAML configurations)"
)
_TERRAFORM = "terraform plan -out plan && terraform show -json plan > plan.json, and --from plan.json"


def read(path: Path) -> Fleet:
    """Return the runners of a file. Raises BadFlag: not readable, of another kind, or without runners with a GPU."""
    documents = list(_documents(path))
    fleet = _fleet(documents, path)
    if not fleet.runners:
        seen = sorted({str(document.get("kind") or "a document without a kind") for document in documents})
        raise _refused(path, f"no runners are in it ({', '.join(seen[:5]) or 'it is empty'})")
    if not any(runner.gpus for runner in fleet.runners):
        names = ", ".join(f"{r.name} ({r.elsewhere})" if r.elsewhere else r.name for r in fleet.runners)
        raise BadFlag(
            f"--from {path}: none of its runners asks for a GPU: {names}"
            "\n    expected: at least one with nvidia.com/gpu, or of an instance type with a GPU"
            "\n    fix: keep runners without GPUs where they are: docs/moving.md"
        )
    return fleet


def _fleet(documents: list[Mapping[str, Any]], path: Path) -> Fleet:
    if any(str(document.get("apiVersion", "")).startswith(summerwind.GROUP) for document in documents):
        return summerwind.read(documents)
    found: list[Found] = []
    others: list[Note] = []
    program = terraform.PROGRAM
    for document in documents:
        if part := terraform.read(document, path.stem) or scale_set.read(document, path.stem):
            program = part.program
            found += part.runners
        elif document.get("kind"):
            name = mapping(document.get("metadata")).get("name")
            others.append(Note("", f"{document['kind']} {name}", "left out", "not a runner; it stays where it is"))
    return Fleet(program, tuple(found), tuple(others))


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _refused(path, f"more than {MAX_BYTES // 2**20} MiB")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadFlag(f"--from {path}: {error.strerror}\n    expected: {EXPECTED}") from None
    except UnicodeDecodeError:
        raise _refused(path, "not text in UTF-8") from None
    if path.suffix in (".tf", ".hcl"):
        raise BadFlag(
            f"--from {path}: Terraform's own language, whose variables only Terraform knows"
            f"\n    expected: its JSON\n    fix: {_TERRAFORM}"
        )
    try:
        parsed = [json.loads(text)] if path.suffix == ".json" else list(yaml.safe_load_all(text))
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        if "{{" in text:
            raise _refused(path, "a Helm template", "helm template RELEASE CHART > runners.yaml") from None
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else f" (line {error.lineno})" if hasattr(error, "lineno") else ""
        raise _refused(path, f"not {'JSON' if path.suffix == '.json' else 'YAML'}{where}") from None
    for document in parsed:
        if isinstance(document, Mapping):
            yield from items(document.get("items")) if document.get("kind") == "List" else [document]


def _refused(path: Path, what: str, fix: str = "") -> BadFlag:
    return BadFlag(f"--from {path}: {what}\n    expected: {EXPECTED}" + (f"\n    fix: {fix}" if fix else ""))

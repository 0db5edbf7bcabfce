"""A plan that `inv plan --json` saved, read back by the document's model."""

from __future__ import annotations

from pathlib import Path

from paddock.plan.document.json_file import JsonFile, file_in
from paddock.plan.document.model import SCHEMA, PlanDocument


def read(path: Path, stack: str, project: str | None = None) -> PlanDocument:
    """Return the plan that was saved. Raises PlanFileError where it is not a plan of this stack."""
    command = f"./inv plan --stack {stack} --json {file_in(path, 'plan.json')}"
    file = JsonFile(
        path, "plan", SCHEMA, "./inv plan", "cannot compare with",
        f"check out the state to compare with and run `{command}` there",
    )  # fmt: skip
    document = file.read({"stack": stack, "project": project}, PlanDocument)
    urns: set[str] = set()
    for index, resource in enumerate(document.resources):
        if resource.urn in urns:
            raise file.misshapen(f"`resources[{index}].urn`", "every URN once")
        urns.add(resource.urn)
    return document

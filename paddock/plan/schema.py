"""JSON Schema of what `./inv plan --json` prints: `python -m paddock.plan.schema > docs/plan.schema.json`."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from paddock.plan.diff.model import ComparedPlan


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out the titles of fields, which only repeat their keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema() -> dict[str, Any]:
    """Return the schema of a plan. It has a `diff` only where it was compared with another one."""
    plan = ComparedPlan.model_json_schema(mode="serialization", schema_generator=_WithoutTitles)
    plan["required"].remove("diff")
    plan["title"], plan["description"] = "A plan of a Paddock stack", "What `./inv plan --json` prints."
    return {"$schema": GenerateJsonSchema.schema_dialect, **plan}


def text() -> str:
    """Return the contents of `docs/plan.schema.json`."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())

"""Rights of the workflows' roles, which are those that their commands need."""

from __future__ import annotations

import ast
import fnmatch
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paddock.images.ami
from paddock.init.permissions import table
from paddock.plan.engine.program import plan_graph
from tests.support.fleets import SAMPLES, fleet_data, graph, stack

PEOPLE = {
    "imagebuilder:CancelImageCreation",
    *("ec2:CreateTags", "ec2:DeleteSnapshot", "ec2:DeregisterImage", "ec2:DescribeImageAttribute"),
    "ec2:DescribeSnapshots",
}
"""What cancelling and pruning ask for, which no workflow does."""


def policy(name: str) -> list[dict[str, Any]]:
    (role_policy,) = (
        resource for resource in graph("images").of_type("aws:iam/rolePolicy:RolePolicy") if resource.name == name
    )
    return list(json.loads(role_policy.inputs["policy"])["Statement"])


def actions_of_commands() -> Iterator[str]:
    """IAM actions of the operations that the commands for machine images name."""
    for path in Path(paddock.images.ami.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1:
                service, operation = node.args[:2]
                if node.func.attr in ("ask", "pages", "change") and isinstance(operation, ast.Constant):
                    name = str(service.value) if isinstance(service, ast.Constant) else "imagebuilder"
                    yield f"{name}:{''.join(word.capitalize() for word in str(operation.value).split('_'))}"


def test_the_image_role_allows_what_the_commands_need() -> None:
    needed = set(actions_of_commands())
    assert {"imagebuilder:StartImagePipelineExecution", "ec2:DescribeImages", "logs:GetLogEvents"} <= needed
    allowed = {action for statement in policy("image-push-ami-policy") for action in statement["Action"]}
    assert not [action for action in allowed if "*" in action]
    # AWS's reference names GetImagePipeline as what StartImagePipelineExecution depends on.
    assert allowed - {"imagebuilder:GetImagePipeline"} == needed - PEOPLE


def test_policies_of_the_commands_allow_what_they_need() -> None:
    allowed = {action for row in table.of_commands() if row.type.startswith("ami.") for action in row.both}
    assert allowed - {"imagebuilder:GetImagePipeline"} - PEOPLE == set(actions_of_commands()) - PEOPLE
    assert allowed >= PEOPLE


def test_it_starts_one_pipeline_and_changes_nothing_else() -> None:
    changes = [
        (action, statement["Resource"])
        for statement in policy("image-push-ami-policy")
        for action in statement["Action"]
        if not action.partition(":")[2].startswith(("Describe", "Get", "List"))
    ]
    ((action, resource),) = changes
    assert action == "imagebuilder:StartImagePipelineExecution"
    assert "image-pipeline/" in resource
    assert "*" not in resource


def test_it_reads_the_builds_of_its_own_recipe() -> None:
    (recipe,) = graph("images").of_type("aws:imagebuilder/imageRecipe:ImageRecipe")
    build = f"arn:aws:imagebuilder:us-west-2:000000000000:image/{recipe.name}-0a1b2c3/1.2.3/1"
    other = "arn:aws:imagebuilder:us-west-2:000000000000:image/another/1.2.3/1"
    (may,) = (
        statement["Resource"]
        for statement in policy("image-push-ami-policy")
        if "imagebuilder:GetImage" in statement["Action"]
    )
    assert any(fnmatch.fnmatchcase(build, pattern) for pattern in may)
    assert not any(fnmatch.fnmatchcase(other, pattern) for pattern in may)


def test_roles_last_as_long_as_their_work() -> None:
    roles = {role.name: role.inputs.get("maxSessionDuration") for role in graph("images").of_type("aws:iam/role:Role")}
    assert (roles["image-push"], roles["image-push-ami"]) == (3600, 6 * 3600)


def test_a_provider_that_is_there_is_trusted_and_not_made() -> None:
    arn = "arn:aws:iam::123456789012:oidc-provider/token.actions.githubusercontent.com"
    planned = plan_graph(stack(fleet_data(images={"push": {"repository": "acme/images", "provider": arn}})))
    assert planned.of_type("aws:iam/openIdConnectProvider:OpenIdConnectProvider") == ()
    (trust,) = (
        json.loads(role.inputs["assumeRolePolicy"])["Statement"]
        for role in planned.of_type("aws:iam/role:Role")
        if role.name == "image-push"
    )
    assert [statement["Principal"] for statement in trust] == [{"Federated": arn}]


def test_without_a_pipeline_there_is_one_role() -> None:
    images = {"repositories": ["runner-gpu"], "push": SAMPLES["images"]["images"]["push"]}
    planned = plan_graph(stack(fleet_data(images=images)))
    assert {role.name for role in planned.of_type("aws:iam/role:Role") if role.name.startswith("image-push")} == {
        "image-push"
    }
    assert "imagePushRole" in planned.outputs
    assert "amiBuildRole" not in planned.outputs

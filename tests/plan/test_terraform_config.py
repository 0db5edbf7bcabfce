"""A program's references survive the way to Terraform, in names that the provider's schema gives."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from paddock.plan.engine.graph import Graph, Resource
from tests.plan.rules.breaking import resource
from tests.support.terraform_config import Markers, write
from tests.support.terraform_names import Block

CLUSTER, TEMPLATE, PROVIDER = "aws:eks/cluster:Cluster", "aws:ec2/launchTemplate:LaunchTemplate", "pulumi:providers:aws"


def attribute(type_: Any, *, computed: bool = False) -> dict[str, Any]:
    return {"type": type_, "computed" if computed else "optional": True}


SCHEMA: dict[str, Any] = {
    "provider": {"block": {"attributes": {"region": attribute("string")}}},
    "data_source_schemas": {
        "aws_caller_identity": {"block": {"attributes": {"account_id": attribute("string", computed=True)}}}
    },
    "resource_schemas": {
        "aws_eks_cluster": {
            "block": {
                "attributes": {
                    "arn": attribute("string", computed=True),
                    "certificate_authority": attribute(["list", ["object", {"data": "string"}]], computed=True),
                    "endpoint": attribute("string", computed=True),
                    "name": attribute("string"),
                },
                "block_types": {
                    "upgrade_policy": {
                        "nesting_mode": "list",
                        "max_items": 1,
                        "block": {"attributes": {"support_type": attribute("string")}},
                    }
                },
            }
        },
        "aws_launch_template": {
            "block": {
                "attributes": {
                    "id": attribute("string", computed=True),
                    "name": attribute("string"),
                    "tags": attribute(["map", "string"]),
                    "user_data": attribute("string"),
                    "security_group_names": attribute(["set", "string"]),
                    "rules": attribute(["set", ["object", {"port": "number", "why": "string"}]]),
                },
                "block_types": {
                    "license_specification": {
                        "nesting_mode": "set",
                        "block": {"attributes": {"license_arn": attribute("string")}},
                    }
                },
            }
        },
    },
}


def written(markers: Markers, *resources: Resource) -> tuple[dict[str, Any], tuple[str, ...]]:
    all_resources = (resource(PROVIDER, "aws", {"region": "us-west-2"}), *resources)
    configuration = write(markers, SCHEMA, Graph("p", "s", {item.urn: item for item in all_resources}, {}, ()))
    return dict(configuration.document), configuration.unsaid


def template(inputs: Mapping[str, Any], markers: Markers | None = None, **more: Any) -> dict[str, Any]:
    document, unsaid = written(markers or Markers(), resource(TEMPLATE, "t", inputs, **more))
    assert not unsaid
    block: dict[str, Any] = document["resource"]["aws_launch_template"]["t"]
    return block


@pytest.mark.parametrize(("key", "name"), [
    ("userData", "user_data"),
    ("securityGroupNames", "security_group_names"),
    ("licenseSpecifications", "license_specification"),
    ("licenseSpecification", "license_specification"),
    ("spotPrice", None),
])  # fmt: skip
def test_names_come_from_the_schema(key: str, name: str | None) -> None:
    block = Block.of(SCHEMA["resource_schemas"]["aws_launch_template"]["block"]).find(key)
    assert (block.name if block else None) == name


def test_a_list_that_a_computed_name_would_double_keeps_its_own() -> None:
    both = Block.of({"attributes": {"subnet": attribute(["set", "string"]), "subnets": attribute(["set", "string"])}})
    assert [both.find(key).name for key in ("subnet", "subnets")] == ["subnet", "subnets"]  # type: ignore[union-attr]


def test_values_take_the_shape_of_their_argument() -> None:
    block = template(
        {
            "licenseSpecifications": [{"licenseArn": "a"}],
            "securityGroupNames": "one",
            "rules": [{"port": 443}],
            "tags": {"camelCase": "kept"},
        }
    )
    assert block["license_specification"] == [{"license_arn": "a"}]
    assert block["security_group_names"] == ["one"]
    assert block["rules"] == [{"port": 443, "why": None}]
    assert block["tags"] == {"camelCase": "kept"}


def test_a_resource_without_a_name_gets_one_as_from_pulumi() -> None:
    assert template({})["name"].startswith("t-")
    assert template({"name": "mine"})["name"] == "mine"


def test_template_syntax_stays_text() -> None:
    assert template({"userData": "${a} %{b} $${c}"})["user_data"] == "$${a} %%{b} $$${c}"


def test_references_survive_json_lists_and_base64() -> None:
    markers = Markers()
    outputs = markers.outputs(CLUSTER, "c", {}, "0")
    script = f'join "{outputs["endpoint"]}" \\\n{outputs["certificateAuthority"]["data"]}'
    block = template(
        {
            "tags": {"policy": json.dumps({"Resource": f"{outputs['arn']}/*"})},
            "userData": base64.b64encode(script.encode()).decode(),
        },
        markers,
    )
    assert block["tags"]["policy"] == '{"Resource": "${aws_eks_cluster.c.arn}/*"}'
    assert block["user_data"] == (
        '${base64encode("join \\"${aws_eks_cluster.c.endpoint}\\" \\\\\\n'
        '${aws_eks_cluster.c.certificate_authority[0].data}")}'
    )


def test_a_lookup_is_a_data_source() -> None:
    markers = Markers()
    answer = markers.lookup("aws:index/getCallerIdentity:getCallerIdentity", {}, "0")
    assert answer is not None
    document, _ = written(markers, resource(TEMPLATE, "t", {"tags": {"by": answer["accountId"]}}))
    (name,) = document["data"]["aws_caller_identity"]
    by = document["resource"]["aws_launch_template"]["t"]["tags"]["by"]
    assert by == f"${{data.aws_caller_identity.{name}.account_id}}"


def test_what_is_waited_for_but_not_referred_to_is_said() -> None:
    markers = Markers()
    cluster = resource(CLUSTER, "c", {"name": "c"})
    for tags, waits in (({}, ["aws_eks_cluster.c"]), ({"by": markers.outputs(CLUSTER, "c", {}, "0")["arn"]}, None)):
        document, _ = written(markers, cluster, resource(TEMPLATE, "t", {"tags": tags}, dependencies=(cluster.urn,)))
        assert document["resource"]["aws_launch_template"]["t"].get("depends_on") == waits


def test_ignored_changes_are_paths_of_attributes() -> None:
    document, _ = written(Markers(), resource(CLUSTER, "c", {}, ignore_changes=("upgradePolicy.supportType",)))
    ignored = document["resource"]["aws_eks_cluster"]["c"]["lifecycle"]["ignore_changes"]
    assert ignored == ["upgrade_policy[0].support_type"]


def test_what_the_schema_does_not_know_is_reported() -> None:
    inputs = {"arn": "computed", "upgradePolicy": {"supportType": "STANDARD", "until": "2027"}, "nodes": 3}
    document, unsaid = written(Markers(), resource(CLUSTER, "c", inputs))
    assert unsaid == ("aws_eks_cluster.arn", "aws_eks_cluster.nodes", "aws_eks_cluster.upgrade_policy.until")
    assert document["resource"]["aws_eks_cluster"]["c"]["upgrade_policy"] == [{"support_type": "STANDARD"}]


def test_two_resources_of_one_name_are_refused() -> None:
    twins = [resource(TEMPLATE, "t", {}, urn=f"urn:pulumi:s::p::{parent}${TEMPLATE}::t") for parent in ("a", "b")]
    with pytest.raises(ValueError, match="would both be aws_launch_template"):
        written(Markers(), *twins)


def test_names_that_terraform_does_not_take_stay_apart() -> None:
    document, _ = written(Markers(), *(resource(TEMPLATE, name, {}) for name in ("a/b", "a.b", "a_b")))
    assert len(document["resource"]["aws_launch_template"]) == 3

"""Every question that the doctor asks AWS, refused, throttled, empty, in many pages: an answer each, and no defect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
import yaml

from paddock.aws.errors import action
from tests.operate.conftest import Examine, Examined
from tests.support.aws_account import DENIED, NUMBER, REGION, Answer, Refusal, healthy

DIGEST = f"sha256:{'4' * 64}"
REPOSITORY = f"{NUMBER}.dkr.ecr.{REGION}.amazonaws.com/paddock-dev/runner-gpu"
ROLE = f"arn:aws:iam::{NUMBER}:role/ci/deployer"
GROUP = "/aws/eks/paddock-dev/cluster"
_QUIET = {
    "ec2.DescribeImages",  # of the dry run, which is left out without an image; the check of the image says so
    "eks.DescribeInsight",  # a recommendation alone
    "iam.GetRole",  # the path alone
    "service-quotas.ListRequestedServiceQuotaChangeHistoryByQuota",
    "sts.GetCallerIdentity",  # tested with refused credentials
}
"""Operations whose answer is left out where it is refused, or said in words of another line."""


def deployed() -> dict[str, Answer]:
    """Return the answers of an account that has a thing of every kind, so that everything is asked."""
    return {
        **healthy(),
        "eks.DescribeCluster": {"cluster": {"name": "paddock-dev", "version": "1.35", "status": "ACTIVE"}},
        "eks.ListInsights": {"insights": [{"id": "i", "name": "skew", "insightStatus": {"status": "WARNING"}}]},
        "eks.DescribeInsight": {"insight": {"recommendation": "mend it"}},
        "eks.ListAddons": {"addons": ["coredns"]},
        "eks.DescribeAddon": {"addon": {"tags": {"paddock:fleet": "paddock-dev"}}},
        "eks.ListPodIdentityAssociations": {
            "associations": [{"associationId": "a", "namespace": "kube-system", "serviceAccount": "aws-node"}]
        },
        "eks.DescribePodIdentityAssociation": {"association": {"tags": {}}},
        "eks.ListAccessEntries": {"accessEntries": [f"arn:aws:iam::{NUMBER}:role/Other", ROLE]},
        "eks.DescribeAccessEntry": {"accessEntry": {"principalArn": ROLE, "tags": {"paddock:fleet": "paddock-dev"}}},
        "eks.ListAssociatedAccessPolicies": {
            "associatedAccessPolicies": [
                {"policyArn": "x/AmazonEKSClusterAdminPolicy", "accessScope": {"type": "cluster"}}
            ]
        },
        "logs.DescribeLogGroups": {"logGroups": [{"logGroupName": GROUP, "kmsKeyId": "k"}]},
        "resourcegroupstaggingapi.GetResources": {"ResourceTagMappingList": []},
        "ecr.DescribeRepositories": {"repositories": [{"repositoryName": "paddock-dev/runner-gpu"}]},
        "ecr.DescribeImages": {"imageDetails": [{"imageDigest": DIGEST}]},
        "iam.ListOpenIDConnectProviders": {"OpenIDConnectProviderList": [{"Arn": "arn:aws:iam::1:oidc-provider/x"}]},
        "iam.GetOpenIDConnectProvider": {"ClientIDList": ["sts.amazonaws.com"]},
        "cloudwatch.DescribeAlarms": {"MetricAlarms": [{"AlarmName": "paddock-paddock-dev-GpuTooHot"}]},
        "ec2.DescribeVpcs": {"Vpcs": [{"VpcId": "vpc-0123456789abcdef0"}]},
        "ec2.DescribeVpcEndpoints": {"VpcEndpoints": [{"VpcEndpointId": "vpce-1", "ServiceName": "s"}]},
    }


@pytest.fixture
def examined(examination: Examine, project: Path) -> Callable[[Mapping[str, Answer]], Examined]:
    """Examine a fleet that has a thing of every kind."""
    file = project / "Pulumi.dev.yaml"
    document = yaml.safe_load(file.read_text())
    fleet = document["config"]["paddock:fleet"]
    provider = f"arn:aws:iam::{NUMBER}:oidc-provider/token.actions.githubusercontent.com"
    fleet |= {
        "images": {"runner": f"{REPOSITORY}@{DIGEST}", "push": {"repository": "pytorch/images", "provider": provider}},
        "monitoring": {"enabled": True, "cloudwatch": {}},
    }
    file.write_text(yaml.safe_dump(document))
    return lambda answers: examination(base=answers)


def defects(report: Examined) -> list[str]:
    return [f"{r.area}/{r.subject}: {r.message}" for r in report.report.results if "a bug in this check" in r.message]


def said(report: Examined) -> str:
    lines = (r for r in report.report.results if r.status != "pass" or "unknown" in r.message)
    return "\n".join(f"{r.message} {r.fix} {r.permission}" for r in lines)


def test_denied_question_is_answered_with_its_permission(examined: Callable[..., Examined]) -> None:
    base = deployed()
    asked = {name for name, _ in examined(base).account.calls}
    assert {"eks.ListInsights", "eks.DescribeAddon", "cloudwatch.DescribeAlarms", "ecr.DescribeImages"} <= asked
    unsaid = []
    for operation in sorted(asked):
        service, _, name = operation.partition(".")
        report = examined({**base, operation: DENIED})
        assert defects(report) == [], operation
        (method,) = (m for m, o in boto3_methods(service).items() if o == name)
        if operation not in _QUIET and action(service, method) not in said(report):
            unsaid.append(operation)
    assert unsaid == []


def boto3_methods(service: str) -> dict[str, str]:
    client = boto3.client(service, REGION, aws_access_key_id="none", aws_secret_access_key="none")
    return dict(client.meta.method_to_api_mapping)


@pytest.mark.parametrize("fault", [DENIED, Refusal("ThrottlingException"), Refusal("ServiceUnavailable", status=503)])
def test_account_that_answers_nothing_leaves_unknowns(examined: Callable[..., Examined], fault: Refusal) -> None:
    base = deployed()
    whose = {"sts.GetCallerIdentity": base["sts.GetCallerIdentity"]}
    report = examined({**dict.fromkeys(base, fault), **whose})
    assert defects(report) == []
    areas = ("quotas", "capacity", "already there", "software")
    judged = {r.status for r in report.report.results if r.area in areas}
    assert judged == {"unknown"}


def test_empty_lists_are_answers(examined: Callable[..., Examined]) -> None:
    empty = {
        operation: {key: [] if isinstance(value, list) else value for key, value in answer.items()}
        for operation, answer in deployed().items()
        if isinstance(answer, Mapping)
    }
    assert defects(examined({**deployed(), **empty})) == []


def test_thing_on_the_last_of_many_pages_is_found(examined: Callable[..., Examined]) -> None:
    base = deployed()
    whole, parted = examined(base), examined({name: _in_pages(name, answer) for name, answer in base.items()})
    assert [(r.subject, r.status) for r in parted.report.results] == [
        (r.subject, r.status) for r in whole.report.results
    ]
    assert len(parted.account.called("eks.ListAccessEntries")) >= 1000


def _in_pages(operation: str, answer: Answer) -> Answer:
    """Return an answer that comes on the last page, behind empty ones, where botocore pages the operation."""
    service, _, name = operation.partition(".")
    try:
        pages = botocore.session.get_session().get_paginator_model(service).get_paginator(name)
    except ValueError:
        return answer
    token_in, token_out, keys = pages["input_token"], pages["output_token"], pages["result_key"]
    if not isinstance(answer, Mapping) or not isinstance(keys, str) or keys not in answer:
        return answer
    last = 1000 if name == "ListAccessEntries" else 5

    def page(parameters: dict[str, Any]) -> dict[str, Any]:
        number = int(parameters.get(token_in) or 0)
        if number == last:
            return dict(answer)
        return {**answer, keys: [], token_out: str(number + 1)}

    return page

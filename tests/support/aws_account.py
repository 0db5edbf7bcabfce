"""A stand-in for an AWS account that is only read: answers by operation, which must fit the models of botocore.

A request that the real model refuses fails in botocore itself; an answer that the model does not know fails here. What
AWS decides (quotas, decisions of IAM) is the test's to say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.validate import ParamValidator

from paddock.operate.sources.aws import AwsReader

NUMBER = "123456789012"
REGION = "us-west-2"
Answer = Mapping[str, Any] | Exception | Callable[[dict[str, Any]], Any]


class Refusal(Exception):
    """An error code with which an operation answers."""

    def __init__(self, code: str, message: str = "words", status: int = 400) -> None:
        super().__init__(code)
        self.code, self.message, self.status = code, message, status


DENIED = Refusal("AccessDeniedException", "User is not authorized to perform this action")


@cache
def _shared_client(service: str, region: str) -> Any:
    return boto3.client(service, region, aws_access_key_id="none", aws_secret_access_key="none")


def _client(service: str, region: str) -> Any:
    """Return a client with handlers of its own, on the parts of a shared one, which takes as long as a test to make."""
    shared = _shared_client(service, region)
    client = object.__new__(type(shared))  # copy() asks a client that is still empty how it is to be copied
    vars(client).update(vars(shared), meta=copy(shared.meta))
    client.meta.events = copy(client.meta.events)
    return client


class Account:
    """Answers of operations, written `service.Operation`. An operation without an answer refuses, as AWS denies."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str], Any] = {}

    def clients(self, service: str, region: str) -> Any:
        """Return the client of a service, as `AwsReader` takes it."""
        with self._lock:
            if (service, region) not in self._clients:
                client = _client(service, region)
                client.meta.events.register("before-parameter-build", self._remember)
                client.meta.events.register("before-call", self._answer)
                self._clients[service, region] = client
            return self._clients[service, region]

    def ask(self, operation: str, parameters: dict[str, Any]) -> Mapping[str, Any]:
        """Note a call and return its answer. Raises Refusal."""
        self.calls.append((operation, parameters))
        answer = self.answers.get(operation, DENIED)
        if callable(answer):
            answer = answer(parameters)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Mapping)
        return answer

    def called(self, operation: str) -> list[dict[str, Any]]:
        return [parameters for name, parameters in self.calls if name == operation]

    def _remember(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["paddock-test"] = params

    def _answer(self, model: Any, context: dict[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
        operation, parameters = f"{model.service_model.service_name}.{model.name}", context["paddock-test"]
        try:
            answer = self.ask(operation, parameters)
        except Refusal as refusal:
            error = {"Error": {"Code": refusal.code, "Message": refusal.message}, "ResponseMetadata": {}}
            return AWSResponse("", refusal.status, {}, None), error
        unknown = set(answer) - set(model.output_shape.members)
        report = ParamValidator().validate(dict(answer), model.output_shape)
        assert not unknown, f"{operation} answers no {unknown}"
        assert not report.has_errors(), report.generate_report()
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        return AWSResponse("", 200, {}, None), {**answer, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}


def healthy(
    *, quotas: Mapping[str, float] | None = None, use: float | None = 0.0, denied: Iterable[str] = ()
) -> dict[str, Answer]:
    """Return the answers of an account in which a small fleet comes up. `quotas`: limits by code, else plenty.

    `use` is what CloudWatch says of every quota's use; `denied` are actions that IAM's simulator denies.
    """
    limits, now = dict(quotas or {}), datetime.now(UTC)
    refused = set(denied)

    def quota(parameters: dict[str, Any]) -> dict[str, Any]:
        code = parameters["QuotaCode"]
        metric = {"MetricNamespace": "AWS/Usage", "MetricName": "ResourceCount", "MetricDimensions": {"Class": "x"}}
        usage = {"UsageMetric": metric} if code in ("L-3819A6DF", "L-1216C47A", "L-DB2E81BA") else {}
        return {"Quota": {"QuotaCode": code, "Value": limits.get(code, 5000.0), "Adjustable": True, **usage}}

    def offerings(parameters: dict[str, Any]) -> dict[str, Any]:
        types = parameters["Filters"][0]["Values"]
        rows = [{"InstanceType": t, "Location": f"{REGION}{zone}"} for t in types for zone in "abcd"]
        return {"InstanceTypeOfferings": rows}

    def prices(parameters: dict[str, Any]) -> dict[str, Any]:
        rows = [
            {
                "InstanceType": type_,
                "AvailabilityZone": f"{REGION}{zone}",
                "SpotPrice": "0.2100",
                "Timestamp": now - timedelta(hours=4),
            }
            for type_ in parameters["InstanceTypes"]
            for zone in "abcd"
        ]
        return {"SpotPriceHistory": rows}

    def simulate(parameters: dict[str, Any]) -> dict[str, Any]:
        rows = [
            {"EvalActionName": name, "EvalDecision": "implicitDeny" if name in refused else "allowed"}
            for name in parameters["ActionNames"]
        ]
        return {"EvaluationResults": rows}

    def dry_run(operation: str) -> Callable[[dict[str, Any]], Any]:
        def answer(parameters: dict[str, Any]) -> Any:
            assert parameters["DryRun"] is True, f"ec2.{operation} would change the account"
            code = "UnauthorizedOperation" if f"ec2:{operation}" in refused else "DryRunOperation"
            return Refusal(code, "Request would have succeeded, but DryRun flag is set", 412)

        return answer

    values = [] if use is None else [use]
    dry = ("AllocateAddress", "CreateInternetGateway", "CreateLaunchTemplate", "CreateVpc", "RunInstances")
    return {
        **{f"ec2.{operation}": dry_run(operation) for operation in dry},
        "sts.GetCallerIdentity": {
            "Account": NUMBER,
            "Arn": f"arn:aws:sts::{NUMBER}:assumed-role/deployer/ci",
            "UserId": "AROA:ci",
        },
        "iam.GetRole": {
            "Role": {
                "Path": "/",
                "RoleName": "deployer",
                "RoleId": "AROAAAAAAAAAAAAAAAAA",
                "Arn": f"arn:aws:iam::{NUMBER}:role/ci/deployer",
                "CreateDate": now,
            }
        },
        "iam.SimulatePrincipalPolicy": simulate,
        "service-quotas.GetServiceQuota": quota,
        "service-quotas.ListRequestedServiceQuotaChangeHistoryByQuota": {"RequestedQuotas": []},
        "cloudwatch.GetMetricData": {"MetricDataResults": [{"Id": "use", "Values": values}]},
        "ec2.DescribeInstances": {"Reservations": []},
        "ec2.DescribeVpcs": lambda p: {"Vpcs": [] if "Filters" in p else [{"VpcId": "vpc-0123456789abcdef0"}]},
        "ec2.DescribeAddresses": {"Addresses": []},
        "ec2.DescribeVpcAttribute": {"EnableDnsSupport": {"Value": True}, "EnableDnsHostnames": {"Value": True}},
        "ec2.DescribeInstanceTypeOfferings": offerings,
        "ec2.DescribeSpotPriceHistory": prices,
        "ec2.GetSpotPlacementScores": {"SpotPlacementScores": [{"Region": REGION, "Score": 7}]},
        "ec2.DescribeImages": lambda p: {
            "Images": [
                {"ImageId": "ami-0123456789abcdef0", "State": "available", "CreationDate": "2026-10-20T01:02:03Z"}
            ]
        },
        "eks.DescribeCluster": Refusal("ResourceNotFoundException"),
        "logs.DescribeLogGroups": {"logGroups": []},
        "ecr.DescribeRepositories": Refusal("RepositoryNotFoundException"),
        "iam.ListOpenIDConnectProviders": {"OpenIDConnectProviderList": []},
        "eks.DescribeClusterVersions": lambda p: {
            "clusterVersions": [
                {
                    "clusterVersion": p["clusterVersions"][0],
                    "versionStatus": "STANDARD_SUPPORT",
                    "endOfStandardSupportDate": datetime(2027, 7, 26, tzinfo=UTC),
                }
            ]
        },
    }


_MADE = AwsReader.__init__


def answering(patch: pytest.MonkeyPatch, account: Account) -> None:
    """Let every reader of AWS that a command makes read this account."""
    patch.setattr(AwsReader, "__init__", lambda self, region, clients=None: _MADE(self, region, account.clients))

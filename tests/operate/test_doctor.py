"""The doctor against a stand-in for an AWS account, whose requests and answers are checked with botocore's models."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.operate.conftest import Examine, Examined, program
from tests.support.aws_account import DENIED, NUMBER, Refusal, healthy

SPOT = "L-3819A6DF"


def edit(project: Path, old: str, new: str) -> None:
    file = project / "Pulumi.dev.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def statuses(examined: Examined) -> dict[str, str]:
    return {f"{r.area}/{r.subject}": r.status for r in examined.report.results if r.area != "github"}


def test_healthy_account_passes_every_check(examination: Examine) -> None:
    examined = examination()
    assert {key: status for key, status in statuses(examined).items() if status != "pass"} == {}
    assert examined.report.account == NUMBER


def test_zero_gpu_quota_names_the_increase_and_the_command(examination: Examine) -> None:
    line = examination(base=healthy(quotas={SPOT: 0.0})).line("quotas", SPOT)
    assert line.status == "fail"
    assert "need 40 vCPU, limit 0, used 0" in line.message
    assert line.fix == (
        "aws service-quotas request-service-quota-increase --region us-west-2 --service-code ec2 "
        f"--quota-code {SPOT} --desired-value 40"
    )
    assert {amount.name: amount.value for amount in line.amounts} == {
        "need": 40, "limit": 0, "used": 0, "used by the fleet": 0,
    }  # fmt: skip


def test_use_by_others_is_added_to_the_increase(examination: Examine) -> None:
    line = examination(base=healthy(quotas={SPOT: 48.0}, use=30.0)).line("quotas", SPOT)
    assert line.status == "warn"
    assert line.fix.endswith("--desired-value 70")


def test_own_instances_do_not_count_twice(examination: Examine) -> None:
    instance = {"InstanceId": "i-1", "InstanceType": "g4dn.2xlarge", "InstanceLifecycle": "spot"}
    running = {"ec2.DescribeInstances": {"Reservations": [{"Instances": [instance] * 4}]}}
    line = examination(running, base=healthy(quotas={SPOT: 40.0}, use=32.0)).line("quotas", SPOT)
    assert line.status == "pass"
    assert "used 32 (32 by this fleet)" in line.message


def test_pending_increase_is_waited_for_when_it_is_enough(examination: Examine) -> None:
    def history(parameters: dict[str, str]) -> dict[str, object]:
        request = {
            "Id": "r1",
            "Status": "CASE_OPENED",
            "DesiredValue": 64.0,
            "Created": datetime(2026, 11, 20, tzinfo=UTC),
        }
        older = {"Id": "r0", "Status": "DENIED", "DesiredValue": 900.0}
        return {"RequestedQuotas": [older, request] if parameters["QuotaCode"] == SPOT else []}

    operation = "service-quotas.ListRequestedServiceQuotaChangeHistoryByQuota"
    line = examination({operation: history}, base=healthy(quotas={SPOT: 0.0})).line("quotas", SPOT)
    assert "an increase to 64 is case opened since 2026-11-20" in line.message
    assert line.fix.startswith("wait for AWS: ")
    assert line.fix.endswith("--request-id r1")


def test_quota_nobody_changed_has_the_default_of_aws(examination: Examine) -> None:
    missing = {"service-quotas.GetServiceQuota": Refusal("NoSuchResourceException")}
    default = {"service-quotas.GetAWSDefaultServiceQuota": {"Quota": {"Value": 0.0}}}
    assert examination(missing | default).line("quotas", SPOT).status == "fail"


def test_denied_read_is_unknown_with_the_missing_permission(examination: Examine) -> None:
    examined = examination({"service-quotas.GetServiceQuota": DENIED})
    line = examined.line("quotas", SPOT)
    assert (line.status, line.permission) == ("unknown", "servicequotas:GetServiceQuota")
    assert "allow servicequotas:GetServiceQuota" in line.fix
    assert examined.line("capacity", "pools.t4 offered").status == "pass", "the other services still answer"


def test_unknown_use_does_not_hide_the_limit(examination: Examine) -> None:
    line = examination({"cloudwatch.GetMetricData": DENIED}).line("quotas", SPOT)
    assert line.status == "pass"
    assert "use unknown, for lack of cloudwatch:GetMetricData" in line.message


@pytest.mark.parametrize(
    ("code", "words"),
    [("ExpiredToken", "have expired"), ("InvalidClientTokenId", "does not know these credentials in us-west-2")],
)
def test_refused_credentials_fail_once_and_leave_the_rest_unknown(examination: Examine, code: str, words: str) -> None:
    examined = examination({"sts.GetCallerIdentity": Refusal(code)})
    failed = [r for r in examined.report.results if r.status == "fail" and r.area != "github"]
    assert [line.subject for line in failed] == ["credentials"]
    assert words in failed[0].message
    assert examined.line("quotas", SPOT).message == "not read: there are no valid credentials for AWS"
    assert {name for name, _ in examined.account.calls} == {"sts.GetCallerIdentity"}


def test_identity_service_that_is_down_leaves_the_others(examination: Examine) -> None:
    examined = examination({"sts.GetCallerIdentity": Refusal("ServiceUnavailable", status=503)})
    assert examined.line("account", "credentials").status == "unknown"
    assert examined.line("quotas", SPOT).status == "pass"
    assert examined.report.account is None


def test_missing_permissions_are_named_with_their_reason(examination: Examine) -> None:
    line = examination(base=healthy(denied=("eks:CreateCluster", "iam:PassRole"))).line("permissions", "pulumi up")
    assert line.status == "fail"
    assert "no policy allows it): eks:CreateCluster, iam:PassRole" in line.message
    assert line.permission == "eks:CreateCluster, iam:PassRole"
    assert line.fix.startswith("paddock init.permissions --stack dev")


def test_a_refused_dry_run_names_action_and_instance_type(examination: Examine) -> None:
    examined = examination(base=healthy(denied=("ec2:RunInstances",)))
    line = examined.line("permissions", "EC2 dry runs")
    assert line.status == "fail"
    assert "AWS refuses ec2:RunInstances of g4dn.xlarge" in line.message
    assert line.permission == "ec2:RunInstances"


def test_a_dry_run_that_is_answered_is_unknown(examination: Examine) -> None:
    line = examination({"ec2.CreateVpc": {"Vpc": {"VpcId": "vpc-1"}}}).line("permissions", "EC2 dry runs")
    assert line.status == "unknown"
    assert "ec2:CreateVpc was answered as if it were not a dry run" in line.message


def test_dry_runs_have_the_tags_of_the_fleet(examination: Examine) -> None:
    (asked,) = examination().account.called("ec2.RunInstances")
    assert asked["ImageId"] == "ami-0123456789abcdef0"
    (tags,) = asked["TagSpecifications"]
    assert {"Key": "paddock:fleet", "Value": "paddock-dev"} in tags["Tags"]


def test_permissions_are_simulated_for_the_role_behind_the_session(examination: Examine) -> None:
    calls = examination().account.called("iam.SimulatePrincipalPolicy")
    assert {call["PolicySourceArn"] for call in calls} == {f"arn:aws:iam::{NUMBER}:role/ci/deployer"}
    assert all("::*:" not in arn for call in calls for arn in call["ResourceArns"])


def test_types_without_a_zone_fail_and_partly_offered_ones_warn(examination: Examine) -> None:
    rows = [{"InstanceType": "g4dn.xlarge", "Location": "us-west-2a"}]
    examined = examination({"ec2.DescribeInstanceTypeOfferings": {"InstanceTypeOfferings": rows}})
    pool = examined.line("capacity", "pools.t4 offered")
    assert pool.status == "warn"
    assert "no g4dn.2xlarge in us-west-2a, us-west-2b, us-west-2c" in pool.message
    assert examined.line("capacity", "cluster.system").status == "fail"


def test_spot_as_dear_as_on_demand_is_scarce(examination: Examine) -> None:
    at = datetime(2026, 11, 23, tzinfo=UTC)
    rows = [
        {"InstanceType": "g4dn.xlarge", "AvailabilityZone": f"us-west-2{zone}", "SpotPrice": price, "Timestamp": at}
        for zone, price in (("a", "0.20"), ("b", "0.526"))
    ]
    line = examination({"ec2.DescribeSpotPriceHistory": {"SpotPriceHistory": rows}}).line("capacity", "spot price")
    assert line.status == "warn"
    assert "scarce: g4dn.xlarge in us-west-2b" in line.message
    assert {amount.as_of for amount in line.amounts} == {at.isoformat()}


@pytest.mark.parametrize(("score", "status"), [(1, "unknown"), (7, "pass")])
def test_low_score_of_two_types_says_nothing(examination: Examine, score: int, status: str) -> None:
    answer = {"SpotPlacementScores": [{"Region": "us-west-2", "Score": score}]}
    line = examination({"ec2.GetSpotPlacementScores": answer}).line("capacity", "spot score")
    assert line.status == status


def test_machine_image_that_is_gone_fails(examination: Examine) -> None:
    line = examination({"ec2.DescribeImages": {"Images": []}}).line("software", "image")
    assert line.status == "fail"
    assert "amazon-eks-node-al2023-x86_64-nvidia-1.36-v" in line.message


@pytest.mark.parametrize(("minor", "key"), [("1.36", ""), ("1.35", ', kubernetes: "1.35"')])
def test_bottlerocket_release_is_read_by_its_parameter(
    minor: str, key: str, examination: Examine, project: Path
) -> None:
    pool = "        capacity: spot\n"
    edit(project, pool, f"{pool}        ami: {{bottlerocket: 1.68.0-1e8d1a37{key}}}\n")

    def parameter(parameters: dict[str, str]) -> dict[str, object]:
        if parameters["Name"] != f"/aws/service/bottlerocket/aws-k8s-{minor}-nvidia/x86_64/1.68.0/image_id":
            raise Refusal("ParameterNotFound")
        return {"Parameter": {"Value": "ami-0123456789abcdef0"}}

    examined = examination({"ssm.GetParameter": parameter})
    assert examined.line("software", "image").status == "pass"
    assert examined.account.called("ec2.DescribeImages") == [{"ImageIds": ["ami-0123456789abcdef0"]}]
    assert examination({"ssm.GetParameter": Refusal("ParameterNotFound")}).line("software", "image").status == "fail"


def test_fallback_on_demand_has_a_quota_of_its_own(examination: Examine, project: Path) -> None:
    edit(project, "        capacity: spot\n", "        capacity: spot\n        fallback: on-demand\n")
    examined = examination(base=healthy(quotas={"L-DB2E81BA": 0.0}))
    assert examined.line("quotas", SPOT).status == "pass"
    line = examined.line("quotas", "L-DB2E81BA")
    assert line.status == "warn"
    assert "enough as long as there is spot capacity" in line.message
    assert line.fix.endswith("--quota-code L-DB2E81BA --desired-value 40")


def test_adopted_cluster_must_be_active_and_of_the_version(examination: Examine, project: Path) -> None:
    text = (project / "Pulumi.dev.yaml").read_text()
    start, end = text.index("    cluster:\n"), text.index("    pools:\n")
    network = f"{{existing: {{vpc: vpc-0aaaaaaaaaaaaaaa0, subnets: [{', '.join(SUBNETS)}]}}}}"
    cluster = f'    cluster: {{existing: shared, version: "1.36"}}\n    network: {network}\n'
    (project / "Pulumi.dev.yaml").write_text(text[:start] + cluster + text[end:])

    def status(answer: object) -> str:
        return examination({"eks.DescribeCluster": answer}).line("software", "cluster shared").status  # type: ignore[dict-item]

    assert status({"cluster": {"status": "ACTIVE", "version": "1.36"}}) == "pass"
    assert status({"cluster": {"status": "ACTIVE", "version": "1.34"}}) == "fail"
    assert status({"cluster": {"status": "UPDATING", "version": "1.36"}}) == "fail"
    assert status(Refusal("ResourceNotFoundException")) == "fail"


def test_old_machine_image_warns_with_its_age(examination: Examine) -> None:
    image = {"ImageId": "ami-0123456789abcdef0", "State": "available", "CreationDate": "2026-07-14T01:02:03Z"}
    line = examination({"ec2.DescribeImages": {"Images": [image]}}).line("software", "image")
    assert line.status == "warn"
    assert "132 days old" in line.message


@pytest.mark.parametrize(("release", "status", "says"), [
    ("1.36.1-20260505", "fail", "so nodes stay NotReady"),
    ("1.36.2-20260714", None, ""),
    (None, "unknown", "it has no tag paddock:release"),
    ("newest", "unknown", "its tag paddock:release is newest"),
])  # fmt: skip
def test_the_base_of_an_own_image_is_known_by_its_tag(
    examination: Examine, project: Path, release: str | None, status: str | None, says: str
) -> None:
    own = 'ami: {custom: ami-0123456789abcdef0, driver: "580.159.03", kubernetes: "1.36"}'
    edit(project, "        capacity: spot\n", f"        capacity: spot\n        {own}\n")
    tags = [{"Key": "paddock:release", "Value": release}] if release else []
    image = {"ImageId": "ami-0123456789abcdef0", "State": "available", "CreationDate": "2026-11-01T01:02:03Z"}
    examined = examination({"ec2.DescribeImages": {"Images": [image | {"Tags": tags}]}})
    found = [line for line in examined.report.results if "t4 image" in line.subject and line.status != "pass"]
    assert [line.status for line in found] == ([status] if status else [])
    assert all(says in line.message for line in found)


def test_version_past_standard_support_warns(examination: Examine) -> None:
    row = {
        "clusterVersion": "1.36",
        "versionStatus": "EXTENDED_SUPPORT",
        "endOfExtendedSupportDate": datetime(2027, 12, 1, tzinfo=UTC),
    }
    line = examination({"eks.DescribeClusterVersions": {"clusterVersions": [row]}}).line("software", "Kubernetes")
    assert line.status == "warn"
    assert "EKS upgrades it by itself" in line.message


DIGEST = f"sha256:{'4' * 64}"


@pytest.mark.parametrize(
    ("suffix", "answer", "status"),
    [
        (f"@{DIGEST}", {"imageDetails": [{"imageDigest": DIGEST}]}, "pass"),
        (":12.8", {"imageDetails": [{"imageDigest": DIGEST}]}, "warn"),
        (f"@{DIGEST}", Refusal("ImageNotFoundException"), "fail"),
        (f"@{DIGEST}", DENIED, "unknown"),
    ],
)
def test_runner_image_in_ecr(examination: Examine, project: Path, suffix: str, answer: object, status: str) -> None:
    image = f"{NUMBER}.dkr.ecr.eu-west-1.amazonaws.com/paddock-dev/runner-gpu{suffix}"
    edit(project, "    pools:\n", f'    images: {{runner: "{image}"}}\n    pools:\n')
    examined = examination({"ecr.DescribeImages": answer})
    assert examined.line("software", "images.runner").status == status
    (call,) = (call for call in examined.account.called("ecr.DescribeImages") if "imageIds" in call)
    about = [result for result in examined.report.results if image in result.message]
    assert len(about) <= 1, "it is said once"
    assert (call["registryId"], call["repositoryName"]) == (NUMBER, "paddock-dev/runner-gpu")


SUBNETS = ("subnet-0aaaaaaaaaaaaaaa0", "subnet-0aaaaaaaaaaaaaaa1")


def test_adopted_subnets_need_free_addresses(examination: Examine, project: Path) -> None:
    network = f"{{existing: {{vpc: vpc-0aaaaaaaaaaaaaaa0, subnets: [{', '.join(SUBNETS)}]}}}}"
    edit(project, "    pools:\n", f"    network: {network}\n    pools:\n")
    rows = [
        {
            "SubnetId": id_,
            "VpcId": "vpc-0aaaaaaaaaaaaaaa0",
            "AvailabilityZone": f"us-west-2{zone}",
            "AvailableIpAddressCount": n,
        }
        for id_, zone, n in zip(SUBNETS, "ab", (3, 4000), strict=True)
    ]
    examined = examination({"ec2.DescribeSubnets": {"Subnets": rows}})
    assert [examined.line("network", id_).status for id_ in SUBNETS] == ["fail", "pass"]


@pytest.mark.parametrize(
    ("allow", "status", "words"),
    [
        ("[198.18.0.0/15]", "pass", "is in 198.18.0.0/15"),
        ("[192.88.0.0/24]", "warn", "is in none of 192.88.0.0/24"),
        ("any", "warn", "whole internet"),
        ("[203.0.113.0/24]", "fail", "an example"),
    ],
)
def test_public_endpoint_list(examination: Examine, project: Path, allow: str, status: str, words: str) -> None:
    edit(project, "[198.18.0.0/15]", allow)
    line = examination().line("network", "cluster.endpoint.allow")
    assert (line.status, words in line.message) == (status, True)


def test_account_that_the_stack_rules_out_fails(examination: Examine, project: Path) -> None:
    edit(project, "config:\n", 'config:\n  aws:allowedAccountIds: ["210987654321"]\n')
    line = examination().line("account", "account")
    assert line.status == "fail"
    assert "aws:allowedAccountIds" in line.message


def test_region_of_the_shell_is_compared(examination: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    line = examination().line("account", "region")
    assert (line.status, line.fix) == ("warn", "export AWS_DEFAULT_REGION=us-west-2")


def test_missing_and_old_programs_are_named(examination: Examine, programs: Path) -> None:
    (programs / "pulumi").unlink()
    program(programs, "aws", "echo aws-cli/1.45.11")
    program(programs, "kubectl", "exit 3")
    examined = examination()
    assert [examined.line("tools", name).status for name in ("pulumi", "aws", "kubectl")] == ["fail", "warn", "unknown"]


def test_defect_of_a_check_leaves_the_others(examination: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"ec2.GetSpotPlacementScores": {"SpotPlacementScores": [{"Region": "us-west-2"}]}}
    line = examination(broken).line("capacity", "spot score")
    assert line.status == "unknown"
    assert "a bug in this check" in line.message


def test_nothing_is_asked_that_could_change_something(examination: Examine) -> None:
    calls = [(name.partition(".")[2], asked) for name, asked in examination().account.calls]
    changing = [asked for name, asked in calls if not name.startswith(("Describe", "Get", "List", "Simulate"))]
    assert changing, "no dry run was asked for"
    assert all(asked["DryRun"] is True for asked in changing)


@pytest.mark.parametrize(
    ("keep", "status", "words"), [(2, "warn", "after 1 more push"), (1, "fail", "within 24 hours")]
)
def test_pin_that_a_lifecycle_rule_takes_is_told_before(
    examination: Examine, project: Path, keep: int, status: str, words: str
) -> None:
    image = f"{NUMBER}.dkr.ecr.us-west-2.amazonaws.com/acme/gateway@{DIGEST}"
    (project / "Pulumi.other.yaml").write_text(f"config: {{x: {image}}}\n")
    selection = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": keep}
    policy = {"rules": [{"rulePriority": 1, "selection": selection, "action": {"type": "expire"}}]}
    details = [
        {"imageDigest": digest, "imageTags": ["x"], "imagePushedAt": datetime(2026, 11, day, tzinfo=UTC)}
        for day, digest in ((1, DIGEST), (2, f"sha256:{'5' * 64}"))
    ]
    answers = {
        "ecr.DescribeImages": {"imageDetails": details},
        "ecr.GetLifecyclePolicy": {"lifecyclePolicyText": json.dumps(policy)},
    }
    line = examination(answers).line("software", "Pulumi.other.yaml:1")
    assert (line.status, words in line.message) == (status, True)


def test_images_of_running_pods_are_looked_at_where_they_are_ours(
    examination: Examine, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, eks = f"{NUMBER}.dkr.ecr.us-west-2.amazonaws.com", "602401143452.dkr.ecr.us-west-2.amazonaws.com"
    (project / "Pulumi.other.yaml").write_text(f"config: {{x: {ours}/acme/gateway:py3-1}}\n")
    running = [f"{ours}/acme/gateway@{DIGEST}", f"{eks}/eks/coredns@{DIGEST}", "docker.io/library/x@sha256:1"]
    statuses = [{"imageID": image} for image in running]
    pod = {"metadata": {"namespace": "serving", "name": "gateway-1"}, "status": {"containerStatuses": statuses}}

    class Cluster:
        def __init__(self, *_: object, **__: object) -> None:
            self.named = True

        def all(self, version: str, kind: str) -> list[object]:
            return [pod, {"metadata": {"name": "pending"}}]

    monkeypatch.setattr("paddock.operate.doctor.checks.retention.kubeconfig.load", Cluster)
    monkeypatch.setattr("paddock.operate.doctor.checks.retention.KubernetesReader", Cluster)
    held = {
        "imageDigest": f"sha256:{'5' * 64}",
        "imageTags": ["py3-1"],
        "imagePushedAt": datetime(2026, 11, 1, tzinfo=UTC),
    }
    missing = Refusal("LifecyclePolicyNotFoundException")
    examined = examination({"ecr.DescribeImages": {"imageDetails": [held]}, "ecr.GetLifecyclePolicy": missing})
    assert len(examined.account.called("ecr.DescribeImages")) == 1, "a repository is read once, and none of EKS's"
    line = examined.line("software", "pod serving/gateway-1")
    assert (line.status, "does not have it" in line.message) == ("fail", True)
    assert examined.line("software", "images that are named").status == "pass"

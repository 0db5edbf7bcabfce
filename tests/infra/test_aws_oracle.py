"""Would AWS take it? Every AWS resource of every fleet, as the call that makes it, against AWS's own API models.

A stand-in for AWS: the models know names, types, enums, patterns and ranges. They do not know what needs what, quotas,
or whether a thing exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from paddock.fleet import FleetError
from paddock.plan.engine.graph import Resource
from paddock.plan.engine.values import Ref, Secret
from tests.support.aws_models import convert, problems, request
from tests.support.fleets import ALL, SAMPLES, fleet_data, graph, stack

Inputs = Mapping[str, Any]

RETENTION_DAYS = {
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
}
"""What PutRetentionPolicy's documentation lists; the model has it only in prose."""


@dataclass(frozen=True)
class Call:
    """One call. `takes`: Pulumi's argument -> the API's. `given`: what the provider fills in."""

    operation: str
    takes: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    shaped: Callable[[dict[str, Any]], Inputs] = dict
    """A last change where the API nests what Pulumi keeps flat, or the other way round."""

    def parameters(self, inputs: Inputs, name: str) -> dict[str, Any]:
        chosen = {theirs: inputs[name] for name, theirs in self.takes.items() if name in inputs}
        filled = {
            key: value.replace("{name}", name) if isinstance(value, str) else value for key, value in self.given.items()
        }
        converted: dict[str, Any] = convert(self.shaped({**filled, **chosen}), request(self.operation))
        return converted


def same(*names: str, **renamed: str) -> dict[str, str]:
    """Arguments that are called alike, and those that are not."""
    return {**{name: name for name in names}, **renamed}


def _tags(kind: str) -> Callable[[dict[str, Any]], Inputs]:
    def shaped(inputs: dict[str, Any]) -> Inputs:
        tags = inputs.pop("tags", {})
        return {**inputs, "TagSpecifications": [{"ResourceType": kind, "Tags": tags}]} if tags else inputs

    return shaped


def _permissions(inputs: dict[str, Any]) -> Inputs:
    return {
        "GroupId": inputs["GroupId"],
        "IpPermissions": [
            {
                "IpProtocol": rule["protocol"],
                "FromPort": rule["fromPort"],
                "ToPort": rule["toPort"],
                "IpRanges": [{"CidrIp": cidr, "Description": rule["description"]} for cidr in rule["cidrBlocks"]],
            }
            for rule in inputs.get("rules", [])
        ],
    }


def _recipe(inputs: dict[str, Any]) -> Inputs:
    for component in inputs["components"]:
        for parameter in component.get("parameters", ()):
            parameter["value"] = [parameter["value"]]
    return {
        **inputs,
        "additionalInstanceConfiguration": {"systemsManagerAgent": inputs["additionalInstanceConfiguration"]},
    }


def _template(inputs: dict[str, Any]) -> Inputs:
    tags = inputs.pop("tags", {})
    request_inputs = {"LaunchTemplateName": inputs.pop("LaunchTemplateName"), "LaunchTemplateData": inputs}
    return (
        request_inputs
        if not tags
        else {**request_inputs, "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags}]}
    )


def _control_plane(inputs: dict[str, Any]) -> Inputs:
    types = inputs.pop("types")
    inputs["logging"] = {"clusterLogging": [{"types": types, "enabled": True}]}
    inputs["encryptionConfig"] = [inputs["encryptionConfig"]]
    return inputs


def _alarm(inputs: dict[str, Any]) -> Inputs:
    """The metric of a query, which Pulumi keeps beside its period and statistic."""
    metrics = []
    for query in inputs.pop("metrics"):
        metric = dict(query.pop("metric", {}))
        if metric:
            names = [{"name": name, "value": value} for name, value in metric.pop("dimensions").items()]
            its = {"namespace": metric.pop("namespace"), "metricName": metric.pop("metricName"), "dimensions": names}
            query = {**query, "metricStat": {"metric": its, **metric}}
        metrics.append(query)
    return {**inputs, "metrics": metrics}


AUTONAME = "{name}-0123456"
CALLS: Mapping[str, tuple[Call, ...]] = {
    "aws:cloudwatch/dashboard:Dashboard": (
        Call("cloudwatch.PutDashboard", same(dashboardName="DashboardName", dashboardBody="DashboardBody")),
    ),
    "aws:cloudwatch/metricAlarm:MetricAlarm": (
        Call("cloudwatch.PutMetricAlarm", same(*("alarmActions", "alarmDescription", "comparisonOperator",
            "evaluationPeriods", "tags", "threshold"), "treatMissingData", name="alarmName", okActions="OKActions",
            metricQueries="metrics"), shaped=_alarm),
    ),
    "aws:cloudwatch/logGroup:LogGroup": (
        Call("logs.CreateLogGroup", same("tags", name="logGroupName", kmsKeyId="kmsKeyId"), {"logGroupName": AUTONAME}),
        Call("logs.PutRetentionPolicy", same("retentionInDays", name="logGroupName"), {"logGroupName": AUTONAME}),
    ),
    "aws:ec2/eip:Eip": (Call("ec2.AllocateAddress", same("domain", "tags"), shaped=_tags("elastic-ip")),),
    "aws:ec2/flowLog:FlowLog": (
        Call("ec2.CreateFlowLogs", same("trafficType", "logDestination", "tags", iamRoleArn="DeliverLogsPermissionArn",
            vpcId="ResourceIds"), {"ResourceType": "VPC"}, shaped=lambda inputs: _tags("vpc-flow-log")({**inputs,
            "ResourceIds": [inputs["ResourceIds"]]})),
    ),
    "aws:ec2/internetGateway:InternetGateway": (
        Call("ec2.CreateInternetGateway", same("tags"), shaped=_tags("internet-gateway")),
        Call("ec2.AttachInternetGateway", same("vpcId"), {"InternetGatewayId": "igw-0123456789abcdef0"}),
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": (
        Call("ec2.CreateLaunchTemplate", same("blockDeviceMappings", "capacityReservationSpecification", "ebsOptimized",
            "imageId", "instanceMarketOptions", "instanceType", "metadataOptions", "tagSpecifications", "tags",
            "userData"), {"LaunchTemplateName": AUTONAME}, shaped=_template),
        Call("ec2.ModifyLaunchTemplate", same(updateDefaultVersion="DefaultVersion"), {"LaunchTemplateName": AUTONAME},
            shaped=lambda inputs: {**inputs, "DefaultVersion": "1"}),
    ),
    "aws:ec2/natGateway:NatGateway": (
        Call("ec2.CreateNatGateway", same("allocationId", "subnetId", "tags"), shaped=_tags("natgateway")),
    ),
    "aws:ec2/route:Route": (
        Call("ec2.CreateRoute", same("destinationCidrBlock", "gatewayId", "natGatewayId", "routeTableId")),
    ),
    "aws:ec2/routeTable:RouteTable": (
        Call("ec2.CreateRouteTable", same("vpcId", "tags"), shaped=_tags("route-table")),
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": (
        Call("ec2.AssociateRouteTable", same("routeTableId", "subnetId")),
    ),
    "aws:ec2/securityGroup:SecurityGroup": (
        Call("ec2.CreateSecurityGroup", same("description", "vpcId", "tags"), {"GroupName": AUTONAME},
            shaped=_tags("security-group")),
        Call("ec2.AuthorizeSecurityGroupIngress", same(ingress="rules"), {"GroupId": "sg-0123456789abcdef0"},
            _permissions),
        Call("ec2.AuthorizeSecurityGroupEgress", same(egress="rules"), {"GroupId": "sg-0123456789abcdef0"},
            _permissions),
    ),
    "aws:ec2/subnet:Subnet": (
        Call("ec2.CreateSubnet", same("availabilityZone", "cidrBlock", "vpcId", "tags"), shaped=_tags("subnet")),
        Call("ec2.ModifySubnetAttribute", same("mapPublicIpOnLaunch"), {"SubnetId": "subnet-0123456789abcdef0"},
            lambda inputs: {**inputs, "mapPublicIpOnLaunch": {"Value": inputs["mapPublicIpOnLaunch"]}}),
    ),
    "aws:ec2/vpc:Vpc": (
        Call("ec2.CreateVpc", same("cidrBlock", "tags"), shaped=_tags("vpc")),
        Call("ec2.ModifyVpcAttribute", same("enableDnsHostnames", "enableDnsSupport"),
            {"VpcId": "vpc-0123456789abcdef0"},
            lambda inputs: {key: {"Value": value} if key.startswith("enable") else value for key,
            value in inputs.items()}),
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": (
        Call("ec2.CreateVpcEndpoint", same("privateDnsEnabled", "routeTableIds", "securityGroupIds", "serviceName",
            "subnetIds", "tags", "vpcEndpointType", "vpcId"), shaped=_tags("vpc-endpoint")),
    ),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": (
        Call("ecr.PutLifecyclePolicy", same(policy="lifecyclePolicyText", repository="repositoryName")),
    ),
    "aws:ecr/repository:Repository": (
        Call("ecr.CreateRepository", same("imageScanningConfiguration", "imageTagMutability", "tags",
            encryptionConfigurations="encryptionConfiguration", name="repositoryName"), shaped=lambda inputs: {**inputs,
            "encryptionConfiguration": inputs["encryptionConfiguration"][0]}),
    ),
    "aws:eks/accessEntry:AccessEntry": (Call("eks.CreateAccessEntry", same("clusterName", "principalArn", "tags")),),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        Call("eks.AssociateAccessPolicy", same("accessScope", "clusterName", "policyArn", "principalArn")),
    ),
    "aws:eks/addon:Addon": (
        Call("eks.CreateAddon", same("addonName", "addonVersion", "clusterName", "configurationValues",
            "podIdentityAssociations", "tags", resolveConflictsOnCreate="resolveConflicts")),
        Call("eks.UpdateAddon", same("addonName", "addonVersion", "clusterName",
            resolveConflictsOnUpdate="resolveConflicts")),
        Call("eks.DeleteAddon", same("addonName", "clusterName", "preserve")),
    ),
    "aws:eks/cluster:Cluster": (
        Call("eks.CreateCluster", same("accessConfig", "bootstrapSelfManagedAddons", "deletionProtection",
            "encryptionConfig", "kubernetesNetworkConfig", "name", "roleArn", "tags", "upgradePolicy", "version",
            enabledClusterLogTypes="types", vpcConfig="resourcesVpcConfig"), shaped=_control_plane),
    ),
    "aws:eks/nodeGroup:NodeGroup": (
        Call("eks.CreateNodegroup", same("amiType", "capacityType", "clusterName", "instanceTypes", "labels",
            "launchTemplate", "nodeRepairConfig", "releaseVersion", "scalingConfig", "tags", "taints", "updateConfig",
            "version", nodeRoleArn="nodeRole", subnetIds="subnets"), {"nodegroupName": AUTONAME}),
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": (
        Call("eks.CreatePodIdentityAssociation", same("clusterName", "namespace", "roleArn", "serviceAccount", "tags")),
    ),
    "aws:iam/instanceProfile:InstanceProfile": (
        Call("iam.CreateInstanceProfile", same("tags"), {"InstanceProfileName": AUTONAME}),
        Call("iam.AddRoleToInstanceProfile", same(role="RoleName"), {"InstanceProfileName": AUTONAME}),
    ),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": (
        Call("iam.CreateOpenIDConnectProvider", same("url", "tags", clientIdLists="ClientIDList")),
    ),
    "aws:iam/role:Role": (
        Call("iam.CreateRole", same("description", "maxSessionDuration", "tags",
            assumeRolePolicy="AssumeRolePolicyDocument"), {"RoleName": AUTONAME}),
    ),
    "aws:iam/rolePolicy:RolePolicy": (
        Call("iam.PutRolePolicy", same(policy="PolicyDocument", role="RoleName"), {"PolicyName": AUTONAME}),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": (
        Call("iam.AttachRolePolicy", same("policyArn", role="RoleName")),
    ),
    "aws:imagebuilder/component:Component": (
        Call("imagebuilder.CreateComponent", same("data", "kmsKeyId", "platform", "supportedOsVersions", "tags",
            version="semanticVersion"), {"name": AUTONAME, "clientToken": "token"}),
    ),
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration": (
        Call("imagebuilder.CreateDistributionConfiguration", same("distributions", "tags"), {"name": AUTONAME,
            "clientToken": "token"}),
    ),
    "aws:imagebuilder/imagePipeline:ImagePipeline": (
        Call("imagebuilder.CreateImagePipeline", same("distributionConfigurationArn", "enhancedImageMetadataEnabled",
            "imageRecipeArn", "imageTestsConfiguration", "infrastructureConfigurationArn", "schedule", "tags"),
            {"name": AUTONAME, "clientToken": "token"}),
    ),
    "aws:imagebuilder/imageRecipe:ImageRecipe": (
        Call("imagebuilder.CreateImageRecipe", same("blockDeviceMappings", "components", "parentImage", "tags",
            version="semanticVersion", systemsManagerAgent="additionalInstanceConfiguration"), {"name": AUTONAME,
            "clientToken": "token"}, _recipe),
    ),
    "aws:imagebuilder/infrastructureConfiguration:InfrastructureConfiguration": (
        Call("imagebuilder.CreateInfrastructureConfiguration", same("instanceMetadataOptions", "instanceProfileName",
            "instanceTypes", "resourceTags", "securityGroupIds", "subnetId", "tags", "terminateInstanceOnFailure"),
            {"name": AUTONAME, "clientToken": "token"}),
    ),
    "aws:kms/key:Key": (
        Call("kms.CreateKey", same("description", "policy", "tags")),
        Call("kms.EnableKeyRotation", same(enableKeyRotation="on"), {"KeyId": "{name}"},
            lambda inputs: {key: value for key, value in inputs.items() if key != "on"}),
        Call("kms.ScheduleKeyDeletion", same(deletionWindowInDays="PendingWindowInDays"), {"KeyId": "{name}"}),
    ),
}  # fmt: skip
WITHOUT_A_CALL = {
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "adopts what AWS made with the VPC and takes its rules away"
}


def refusals(resource: Resource) -> Iterator[str]:
    """Refusals of AWS for `resource`."""
    inputs = _plain(resource.inputs)
    calls = CALLS[resource.type]
    if any("tags" in call.takes for call in calls):
        inputs["tags"] = {**inputs.get("tags", {}), "paddock:fleet": "sample"}  # the provider's default tag
    unused = set(inputs) - {name for call in calls for name in call.takes}
    yield from (f"{resource.type}: no call takes {argument}" for argument in sorted(unused))
    for call in calls:
        if call.takes.keys() & inputs.keys() or not call.takes.keys() - {"tags"}:
            yield from problems(call.operation, call.parameters(inputs, resource.name))
    if beyond := BEYOND.get(resource.type):
        yield from beyond(inputs)


def _plain(value: Any) -> Any:
    match value:
        case Secret(value=inner):
            return _plain(inner)
        case Ref(urn=urn):
            return urn
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value


# ---- what AWS's documentation asks beyond the models ----


def _node_group(inputs: Inputs) -> Iterator[str]:
    sizes = inputs["scalingConfig"]
    if not sizes["minSize"] <= sizes["desiredSize"] <= sizes["maxSize"]:
        yield f"sizes {sizes} are not in order"
    if inputs.get("amiType", "CUSTOM") == "CUSTOM" and {"version", "releaseVersion"} & inputs.keys():
        yield "with an image in the launch template neither version nor releaseVersion may be given"
    if (inputs["capacityType"] == "CAPACITY_BLOCK") == ("instanceTypes" in inputs):
        yield "a Capacity Block's type stands in the launch template, any other's in the node group"
    for key, value in inputs["labels"].items():
        if len(key.rpartition("/")[2]) > 63 or len(value) > 63:
            yield f"label {key}={value} is too long"


def _log_group(inputs: Inputs) -> Iterator[str]:
    if inputs["retentionInDays"] not in RETENTION_DAYS:
        yield f"retention of {inputs['retentionInDays']} days is none of {sorted(RETENTION_DAYS)}"


def _document(text: str, most: int, needed: set[str]) -> Iterator[str]:
    """An IAM policy document, by IAM's grammar."""
    document = json.loads(text)
    if len(json.dumps(document, separators=(",", ":"))) > most:
        yield f"a policy of more than {most} characters"
    if document.get("Version") != "2012-10-17":
        yield "a policy without a version"
    for statement in document["Statement"]:
        if unknown := set(statement) - {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}:
            yield f"a statement with {unknown}"
        if missing := {"Effect", "Action", *needed} - set(statement):
            yield f"a statement without {missing}"


def _lifecycle(inputs: Inputs) -> Iterator[str]:
    rules = json.loads(inputs["policy"])["rules"]
    priorities = [rule["rulePriority"] for rule in rules]
    if len(set(priorities)) < len(priorities):
        yield "two rules of one priority"
    for rule in rules:
        if rule["selection"]["tagStatus"] == "any" and rule["rulePriority"] < max(priorities):
            yield "a rule for any image must be the last"


def _template_limits(inputs: Inputs) -> Iterator[str]:
    volume = inputs["blockDeviceMappings"][0]["ebs"]
    if volume["throughput"] > volume["iops"] / 4:
        yield "gp3 gives at most 0.25 MiB/s for each of its IOPS"
    if volume["iops"] > max(3000, 500 * volume["volumeSize"]):
        yield "gp3 gives at most 500 IOPS for each GiB"
    if len(inputs.get("userData", "")) > 16384 * 4 // 3:
        yield "user data of more than 16 KiB"


BEYOND: Mapping[str, Callable[[Inputs], Iterator[str]]] = {
    "aws:cloudwatch/logGroup:LogGroup": _log_group,
    "aws:ec2/launchTemplate:LaunchTemplate": _template_limits,
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": _lifecycle,
    "aws:eks/nodeGroup:NodeGroup": _node_group,
    "aws:iam/role:Role": lambda inputs: _document(inputs["assumeRolePolicy"], 2048, {"Principal"}),
    "aws:iam/rolePolicy:RolePolicy": lambda inputs: _document(inputs["policy"], 10240, {"Resource"}),
    "aws:kms/key:Key": lambda inputs: _document(inputs["policy"], 32768, {"Principal", "Resource"}),
}


# ---- the tests ----


@pytest.mark.parametrize("name", ALL)
def test_standin_for_aws_takes_every_resource(name: str) -> None:
    resources = [
        r for r in graph(name).resources.values() if r.type.startswith("aws:") and r.type not in WITHOUT_A_CALL
    ]

    assert {resource.type for resource in resources} <= set(CALLS), "a type without a row"
    assert {r.name: found for r in resources if (found := list(refusals(r)))} == {}


def test_every_row_is_used() -> None:
    used = {resource.type for name in ALL for resource in graph(name).resources.values()}

    assert set(CALLS) | set(WITHOUT_A_CALL) <= used


NODES = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    (NODES, {"capacityType": "spot"}, "'spot' is none of ON_DEMAND, SPOT"),
    (NODES, {"taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]},
     "'NoSchedule' is none of"),
    (NODES, {"scalingConfig": {"minSize": 0, "maxSize": 0, "desiredSize": 0}}, "maxSize"),
    (NODES, {"scalingConfig": {"minSize": 2, "maxSize": 3, "desiredSize": 0}}, "not in order"),
    (NODES, {"spotPrice": "1"}, "no call takes spotPrice"),
    (NODES, {"updateConfig": {"maxUnavailable": 1, "strategy": "DEFAULT"}}, "Unknown parameter"),
    (NODES, {"updateConfig": {"maxUnavailable": 1, "updateStrategy": "Minimal"}}, "'Minimal' is none of"),
    (NODES, {"amiType": "AL2023_x86_64_GPU"}, "'AL2023_x86_64_GPU' is none of"),
    (NODES, {"amiType": None}, "amiType"),
    (NODES, {"labels": {"team": "a" * 64}}, "too long"),
    (NODES, {"subnetIds": "subnet-1"}, "Invalid type for parameter subnets"),
    (TEMPLATE, {"metadataOptions": {"httpTokens": "always"}}, "'always' is none of optional, required"),
    (TEMPLATE, {"instanceMarketOptions": {"marketType": "CAPACITY_BLOCK"}}, "is none of spot, capacity-block"),
    (TEMPLATE, {"tagSpecifications": [{"resourceType": "disk", "tags": {}}]}, "'disk' is none of"),
    (TEMPLATE, {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeType": "gp3", "volumeSize": 50,
     "iops": 3000, "throughput": 900}}]}, "0.25 MiB/s"),
    ("aws:cloudwatch/logGroup:LogGroup", {"retentionInDays": 366}, "retention of 366 days"),
    ("aws:kms/key:Key", {"deletionWindowInDays": 0}, "PendingWindowInDays"),
    ("aws:ecr/repository:Repository", {"imageTagMutability": "immutable"}, "'immutable' is none of"),
    ("aws:ecr/repository:Repository", {"name": "Upper/Case"}, "does not match"),
    ("aws:eks/addon:Addon", {"resolveConflictsOnUpdate": "OVERRIDE"}, "'OVERRIDE' is none of"),
    ("aws:eks/cluster:Cluster", {"upgradePolicy": {"supportType": "standard"}}, "'standard' is none of"),
    ("aws:eks/cluster:Cluster", {"enabledClusterLogTypes": ["apis"]}, "'apis' is none of"),
    ("aws:iam/role:Role", {"maxSessionDuration": 60}, "MaxSessionDuration"),
    ("aws:iam/rolePolicy:RolePolicy", {"policy": '{"Statement": [{"Effect": "Allow"}]}'}, "a policy without a version"),
    ("aws:imagebuilder/imageRecipe:ImageRecipe", {"version": "1.0"}, "semanticVersion"),
    ("aws:eks/nodeGroup:NodeGroup", {"tags": {"k" * 129: "v"}}, "tags"),
    ("aws:ec2/vpcEndpoint:VpcEndpoint", {"vpcEndpointType": "interface"}, "'interface' is none of"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("type_", "mistake", "message"),
    MISTAKES,
    ids=[f"{t.rpartition(':')[2]}-{'-'.join(m)}-{i}" for i, (t, m, _) in enumerate(MISTAKES)],
)
def test_standin_for_aws_refuses_mistakes(type_: str, mistake: dict[str, Any], message: str) -> None:
    good = graph("prod").of_type(type_)[-1]
    bad = Resource(
        **{name: getattr(good, name) for name in Resource.__slots__} | {"inputs": {**good.inputs, **mistake}}
    )

    assert not list(refusals(good))
    assert message in "\n".join(refusals(bad))


@pytest.mark.parametrize("days", [2, 31, 366, 5000])
@pytest.mark.parametrize("part", ["cluster", "network"])
def test_fleet_refuses_a_retention_that_cloudwatch_has_not(part: str, days: int) -> None:
    data = fleet_data()
    data[part] = {**data[part], "logDays" if part == "cluster" else "flowLogDays": days}

    with pytest.raises(FleetError, match="365"):
        stack(data)


def test_fleet_takes_every_retention_that_cloudwatch_has() -> None:
    for days in RETENTION_DAYS:
        stack(SAMPLES["smallest"] | {"network": {"zones": 2, "flowLogDays": days}})

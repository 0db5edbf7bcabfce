"""Answers that only a cloud could give, made up where a plan needs some: ids, ARNs, look-ups.

Everything here is recognisable: the account is all zeros, ids end in the resource's own name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from paddock.plan.engine.values import UNKNOWN, Secret

ACCOUNT = "000000000000"
_ID_PREFIXES = {
    "aws:ec2/vpc:Vpc": "vpc",
    "aws:ec2/subnet:Subnet": "subnet",
    "aws:ec2/securityGroup:SecurityGroup": "sg",
    "aws:ec2/routeTable:RouteTable": "rtb",
    "aws:ec2/internetGateway:InternetGateway": "igw",
    "aws:ec2/natGateway:NatGateway": "nat",
    "aws:ec2/eip:Eip": "eipalloc",
    "aws:ec2/launchTemplate:LaunchTemplate": "lt",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "vpce",
}
_NAMED = {  # resources whose id is their name
    "aws:iam/role:Role",
    "aws:iam/instanceProfile:InstanceProfile",
    "aws:eks/cluster:Cluster",
    "aws:cloudwatch/logGroup:LogGroup",
    "aws:ecr/repository:Repository",
}

_PATHS = {  # what follows the account in an ARN
    "aws:cloudwatch/logGroup:LogGroup": "log-group:{name}",
    "aws:ecr/repository:Repository": "repository/{name}",
    "aws:eks/cluster:Cluster": "cluster/{name}",
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": "oidc-provider/{name}",
    "aws:iam/role:Role": "role/{name}",
    "aws:imagebuilder/component:Component": "component/{slug}/1.0.0/1",
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration": "distribution-configuration/{slug}",
    "aws:imagebuilder/imagePipeline:ImagePipeline": "image-pipeline/{slug}",
    "aws:imagebuilder/imageRecipe:ImageRecipe": "image-recipe/{slug}/1.0.0",
    "aws:imagebuilder/infrastructureConfiguration:InfrastructureConfiguration": "infrastructure-configuration/{slug}",
    "aws:kms/key:Key": "key/{name}",
}


class Answers(Protocol):
    """Answers in a cloud's place: those of this module, or what another tool wants to see there."""

    def resource_id(self, type_: str, name: str) -> str: ...

    def outputs(self, type_: str, name: str, inputs: Mapping[str, Any], account: str) -> Mapping[str, Any]: ...

    def lookup(self, token: str, arguments: Mapping[str, Any], account: str) -> Mapping[str, Any] | None: ...


def resource_id(type_: str, name: str) -> str:
    """Return an id of the form that the resource's own service gives."""
    digest = hashlib.sha256(f"{type_}/{name}".encode()).hexdigest()
    prefix = _ID_PREFIXES.get(type_)
    return f"{prefix}-{digest[:17]}" if prefix else name if type_.startswith("aws:") else digest[:12]


def outputs(type_: str, name: str, inputs: Mapping[str, Any], account: str) -> dict[str, Any]:
    """Outputs that a provider would compute, besides the inputs it gives back."""
    if type_.startswith("kubernetes:"):
        metadata = inputs.get("metadata")
        named = dict(metadata) if isinstance(metadata, Mapping) else {}
        return {"metadata": {"name": name, **named}} if "name" not in named else {}
    if not type_.startswith("aws:"):
        return {}
    package = type_.split(":")[1].split("/")[0]
    service = {"cloudwatch": "logs", "ec2": "ec2"}.get(package, package)
    physical = inputs.get("name", name)
    path = _PATHS.get(type_, "{name}").format(name=physical, slug=str(physical).lower())
    region = "" if package == "iam" else "us-west-2"
    computed: dict[str, Any] = {"arn": f"arn:aws:{service}:{region}:{account}:{path}"}
    if type_ in _NAMED:
        computed["name"] = physical
    match type_:
        case "aws:ec2/launchTemplate:LaunchTemplate":
            computed["latestVersion"] = 1
        case "aws:eks/nodeGroup:NodeGroup":
            group = f"eks-{name}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
            computed["resources"] = [{"autoscalingGroups": [{"name": group}]}]
        case "aws:eks/cluster:Cluster":
            computed |= {
                "endpoint": f"https://{hashlib.sha256(name.encode()).hexdigest()[:32].upper()}.eks.amazonaws.com",
                "certificateAuthority": {"data": "Q0VSVElGSUNBVEU="},
                "kubeconfig": UNKNOWN,
            }
    return computed


def read(type_: str, id_: str, preview: bool) -> dict[str, Any]:
    """Return what is there already: the outputs of another stack, the Kubernetes API of somebody else's cluster."""
    if type_ == "kubernetes:core/v1:Service":
        return {"spec": {"clusterIP": "172.20.0.1"}}
    if type_ == "kubernetes:discovery.k8s.io/v1:EndpointSlice":
        return {"endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"port": 443}]}
    if type_ != "pulumi:pulumi:StackReference":
        return {}
    stack_outputs = {"kubeconfig": UNKNOWN if preview else f"<kubeconfig of {id_}>", "registry": UNKNOWN}
    return {"name": id_, "outputs": stack_outputs, "secretOutputNames": []}


def lookup(token: str, arguments: Mapping[str, Any], account: str) -> Mapping[str, Any] | None:
    """Return the answer to a question that the program asks the cloud; None for one that it should not ask."""
    match token:
        case "aws:index/getCallerIdentity:getCallerIdentity":
            role = f"arn:aws:sts::{account}:assumed-role/deployer/plan"
            return {"accountId": account, "arn": role, "id": account, "userId": "AROAPLAN:plan"}
        case "aws:iam/getSessionContext:getSessionContext":
            role = f"arn:aws:iam::{account}:role/deployer"
            return {
                "arn": arguments.get("arn", ""),
                "id": arguments.get("arn", ""),
                "issuerArn": role,
                "issuerId": "AROAPLAN",
                "issuerName": "deployer",
                "sessionName": "plan",
            }
        case "aws:eks/getCluster:getCluster":
            name = arguments["name"]
            return {
                "name": name,
                "id": name,
                "arn": f"arn:aws:eks:us-west-2:{account}:cluster/{name}",
                "endpoint": f"https://{name}.eks.amazonaws.com",
                "certificateAuthorities": [{"data": "Q0VSVElGSUNBVEU="}],
                "kubernetesNetworkConfigs": [{"serviceIpv4Cidr": "172.20.0.0/16", "ipFamily": "ipv4"}],
            }
        case "aws:ec2/getVpc:getVpc":
            return {"id": arguments["id"], "cidrBlockAssociations": [{"cidrBlock": "10.0.0.0/16"}]}
        case "aws:secretsmanager/getSecretVersion:getSecretVersion":
            return {
                "secretId": arguments["secretId"],
                "id": arguments["secretId"],
                "secretString": Secret("<from AWS>"),
            }
        case "kubernetes:helm:template":
            return {"result": list(_crds(json.loads(arguments["jsonOpts"])))}
        case _:
            return None


def _crds(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """CRDs of a chart; what is in them is known to who has the chart."""
    # Here, because stand-ins of providers need no chart, and the fleet's model is most of their start.
    from infra.helm.charts import CHARTS
    from paddock.fleet.model.mirror import chart_name

    chart = CHARTS[chart_name(options.get("path") or options["chart"])]
    for name in chart.crds:
        plural, _, group = name.partition(".")
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {"group": group, "names": {"plural": plural}, "versions": f"<of {chart.name} {chart.version}>"},
        }

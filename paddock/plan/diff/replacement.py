"""Effect of a changed field on its resource: replacement, update in place, or unknown.

Facts, dated, for the types that the program declares. A field that stands nowhere here is `unknown`, and is said to
be: a reviewer who reads "unknown" checks, one who reads "in place" does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from paddock.plan.engine import resource_types as types

AS_OF = date(2026, 7, 1)
SOURCES = (
    "pulumi-aws 7.51.1, which wraps terraform-provider-aws 6: `ForceNew` and `RequiresReplace` of its schemas",
    "pulumi-kubernetes 4.34.2: provider/pkg/provider/diff.go, helm_release.go and DiffConfig",
    "Amazon EKS API: UpdateNodegroupVersion, UpdateNodegroupConfig and UpdateClusterConfig, with their limits",
)

Effect = Literal["replace", "update", "unknown"]

AWS_PROVIDER = "pulumi:providers:aws"


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of a type as dotted paths of the document's names; a path speaks for all below it."""

    replace: frozenset[str]
    update: frozenset[str]


def _fields(replace: str, update: str = "") -> Fields:
    return Fields(frozenset(replace.split()), frozenset(update.split()))


_LAUNCH_TEMPLATE_VERSIONED = (
    "blockDeviceMappings capacityReservationSpecification cpuOptions creditSpecification description disableApiStop"
    " disableApiTermination ebsOptimized enclaveOptions hibernationOptions iamInstanceProfile imageId"
    " instanceInitiatedShutdownBehavior instanceMarketOptions instanceRequirements instanceType kernelId keyName"
    " licenseSpecifications maintenanceOptions metadataOptions monitoring networkInterfaces placement"
    " privateDnsNameOptions ramDiskId securityGroupNames tagSpecifications userData vpcSecurityGroupIds"
)
_METADATA = "metadata.annotations metadata.labels"
_NAMED = "metadata.name metadata.namespace"

TYPES: Mapping[str, Fields] = {
    "aws:cloudwatch/dashboard:Dashboard": _fields("dashboardName", "dashboardBody"),
    "aws:cloudwatch/metricAlarm:MetricAlarm": _fields(
        "name",
        "actionsEnabled alarmActions alarmDescription comparisonOperator datapointsToAlarm dimensions"
        " evaluateLowSampleCountPercentiles evaluationPeriods extendedStatistic insufficientDataActions metricName"
        " metricQueries namespace okActions period statistic tags threshold thresholdMetricId treatMissingData unit",
    ),
    "aws:cloudwatch/logGroup:LogGroup": _fields(
        "name namePrefix logGroupClass", "kmsKeyId retentionInDays skipDestroy tags"
    ),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _fields("vpcId", "ingress egress tags"),
    "aws:ec2/eip:Eip": _fields(
        "domain address publicIpv4Pool networkBorderGroup", "instance networkInterface associateWithPrivateIp tags"
    ),
    "aws:ec2/flowLog:FlowLog": _fields(
        "deliverCrossAccountRole destinationOptions eniId iamRoleArn logDestination logDestinationType logFormat"
        " maxAggregationInterval subnetId trafficType transitGatewayAttachmentId transitGatewayId vpcId",
        "tags",
    ),
    "aws:ec2/internetGateway:InternetGateway": _fields("", "vpcId tags"),
    types.LAUNCH_TEMPLATE: _fields(
        "name namePrefix", f"{_LAUNCH_TEMPLATE_VERSIONED} defaultVersion updateDefaultVersion tags"
    ),
    "aws:ec2/natGateway:NatGateway": _fields("allocationId connectivityType privateIp subnetId", "tags"),
    "aws:ec2/route:Route": _fields(
        "routeTableId destinationCidrBlock destinationIpv6CidrBlock destinationPrefixListId",
        "gatewayId natGatewayId networkInterfaceId transitGatewayId vpcEndpointId vpcPeeringConnectionId",
    ),
    "aws:ec2/routeTable:RouteTable": _fields("vpcId", "routes propagatingVgws tags"),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _fields("subnetId gatewayId", "routeTableId"),
    "aws:ec2/securityGroup:SecurityGroup": _fields(
        "name namePrefix description vpcId", "ingress egress revokeRulesOnDelete tags"
    ),
    types.SUBNET: _fields(
        "vpcId cidrBlock availabilityZone availabilityZoneId ipv6Native outpostArn",
        "mapPublicIpOnLaunch assignIpv6AddressOnCreation enableDns64 enableResourceNameDnsARecordOnLaunch"
        " enableResourceNameDnsAaaaRecordOnLaunch privateDnsHostnameTypeOnLaunch tags",
    ),
    types.VPC: _fields(
        "cidrBlock ipv4IpamPoolId ipv4NetmaskLength",
        "enableDnsHostnames enableDnsSupport enableNetworkAddressUsageMetrics assignGeneratedIpv6CidrBlock tags",
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": _fields(
        "vpcId serviceName serviceRegion vpcEndpointType resourceConfigurationArn serviceNetworkArn",
        "autoAccept ipAddressType policy routeTableIds securityGroupIds subnetIds subnetConfigurations tags",
    ),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": _fields("repository"),
    "aws:ecr/repository:Repository": _fields(
        "name encryptionConfigurations", "forceDelete imageScanningConfiguration imageTagMutability tags"
    ),
    "aws:eks/accessEntry:AccessEntry": _fields("clusterName principalArn type", "kubernetesGroups userName tags"),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": _fields(
        "clusterName principalArn policyArn accessScope"
    ),
    "aws:eks/addon:Addon": _fields(
        "addonName clusterName",
        "addonVersion configurationValues podIdentityAssociations preserve resolveConflictsOnCreate"
        " resolveConflictsOnUpdate serviceAccountRoleArn tags",
    ),
    types.CLUSTER: _fields(
        "name roleArn bootstrapSelfManagedAddons accessConfig.bootstrapClusterCreatorAdminPermissions"
        " kubernetesNetworkConfig.ipFamily kubernetesNetworkConfig.serviceIpv4Cidr",
        "accessConfig.authenticationMode deletionProtection enabledClusterLogTypes upgradePolicy version vpcConfig"
        " kubernetesNetworkConfig.elasticLoadBalancing zonalShiftConfig tags",
    ),
    types.NODE_GROUP: _fields(
        "amiType capacityType clusterName diskSize instanceTypes launchTemplate.id launchTemplate.name nodeGroupName"
        " nodeGroupNamePrefix nodeRoleArn remoteAccess subnetIds",
        "forceUpdateVersion labels launchTemplate.version nodeRepairConfig releaseVersion scalingConfig tags taints"
        " updateConfig version",
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": _fields(
        "clusterName namespace serviceAccount", "disableSessionTags roleArn targetRoleArn tags"
    ),
    "aws:iam/instanceProfile:InstanceProfile": _fields("name namePrefix path", "role tags"),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": _fields("url", "thumbprintLists tags"),
    "aws:iam/role:Role": _fields(
        "name namePrefix path",
        "assumeRolePolicy description forceDetachPolicies inlinePolicies managedPolicyArns maxSessionDuration"
        " permissionsBoundary tags",
    ),
    "aws:iam/rolePolicy:RolePolicy": _fields("name namePrefix role", "policy"),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": _fields("role policyArn"),
    "aws:imagebuilder/component:Component": _fields(
        "changeDescription data description kmsKeyId name platform supportedOsVersions uri version", "skipDestroy tags"
    ),
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration": _fields(
        "name", "description distributions tags"
    ),
    "aws:imagebuilder/imagePipeline:ImagePipeline": _fields(
        "name",
        "containerRecipeArn description distributionConfigurationArn enhancedImageMetadataEnabled executionRole"
        " imageRecipeArn imageScanningConfiguration imageTestsConfiguration infrastructureConfigurationArn schedule"
        " status workflows tags",
    ),
    "aws:imagebuilder/imageRecipe:ImageRecipe": _fields(
        "amiTags blockDeviceMappings components description name parentImage systemsManagerAgent userDataBase64 version"
        " workingDirectory",
        "tags",
    ),
    "aws:imagebuilder/infrastructureConfiguration:InfrastructureConfiguration": _fields(
        "name",
        "description instanceMetadataOptions instanceProfileName instanceTypes keyPair logging placement resourceTags"
        " securityGroupIds snsTopicArn subnetId tags terminateInstanceOnFailure",
    ),
    "aws:kms/key:Key": _fields(
        "customKeyStoreId customerMasterKeySpec keyUsage multiRegion xksKeyId",
        "bypassPolicyLockoutSafetyCheck deletionWindowInDays description enableKeyRotation isEnabled policy"
        " rotationPeriodInDays tags",
    ),
    "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy": _fields(
        "metadata.name", f"{_METADATA} spec"
    ),
    "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding": _fields(
        "metadata.name", f"{_METADATA} spec"
    ),
    # A provider without `enableConfigMapMutable` and `enableSecretMutable` makes these anew.
    "kubernetes:core/v1:ConfigMap": _fields(f"{_NAMED} data binaryData", _METADATA),
    types.SECRET: _fields(f"{_NAMED} data stringData type", _METADATA),
    "kubernetes:apps/v1:DaemonSet": _fields(
        f"{_NAMED} spec.selector", f"{_METADATA} spec.template spec.updateStrategy spec.minReadySeconds"
    ),
    "kubernetes:apps/v1:Deployment": _fields(
        f"{_NAMED} spec.selector", f"{_METADATA} spec.template spec.replicas spec.strategy spec.minReadySeconds"
    ),
    # Kubernetes refuses other claims and another service: those make a new set.
    types.STATEFUL_SET: _fields(
        f"{_NAMED} spec.selector spec.serviceName spec.volumeClaimTemplates spec.podManagementPolicy",
        f"{_METADATA} spec.template spec.replicas spec.updateStrategy spec.minReadySeconds",
    ),
    "kubernetes:batch/v1:CronJob": _fields(_NAMED, f"{_METADATA} spec"),
    "kubernetes:core/v1:LimitRange": _fields(_NAMED, f"{_METADATA} spec"),
    "kubernetes:core/v1:Namespace": _fields("metadata.name", f"{_METADATA} spec"),
    "kubernetes:core/v1:ResourceQuota": _fields(f"{_NAMED} spec.scopes", f"{_METADATA} spec.hard"),
    "kubernetes:core/v1:Service": _fields(
        f"{_NAMED} spec.clusterIP", f"{_METADATA} spec.ports spec.selector spec.type"
    ),
    "kubernetes:core/v1:ServiceAccount": _fields(
        _NAMED, f"{_METADATA} automountServiceAccountToken imagePullSecrets secrets"
    ),
    "kubernetes:networking.k8s.io/v1:NetworkPolicy": _fields(_NAMED, f"{_METADATA} spec"),
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole": _fields("metadata.name", f"{_METADATA} rules"),
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding": _fields(
        "metadata.name roleRef", f"{_METADATA} subjects"
    ),
    "kubernetes:rbac.authorization.k8s.io/v1:Role": _fields(_NAMED, f"{_METADATA} rules"),
    "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding": _fields(f"{_NAMED} roleRef", f"{_METADATA} subjects"),
    # Kubernetes refuses another value, and the provider would not know that it must make a new one: left out.
    "kubernetes:scheduling.k8s.io/v1:PriorityClass": _fields("metadata.name", f"{_METADATA} description globalDefault"),
    "kubernetes:storage.k8s.io/v1:StorageClass": _fields(
        "metadata.name parameters provisioner", f"{_METADATA} allowVolumeExpansion"
    ),
    types.RELEASE: _fields(
        "name namespace",
        "allowNullValues atomic chart cleanupOnFail createNamespace dependencyUpdate description disableCRDHooks"
        " disableOpenapiValidation disableWebhooks forceUpdate keyring lint maxHistory postrender recreatePods"
        " renderSubchartNotes replace repositoryOpts resetValues reuseValues skipAwait skipCrds timeout"
        " valueYamlFiles values verify version waitForJobs",
    ),
    "pulumi:providers:kubernetes": _fields("clusterIdentifier"),
    AWS_PROVIDER: _fields("", "defaultTags"),
}

_REFERENCES: Mapping[tuple[str, str], str] = {
    (types.NODE_GROUP, "launchTemplate"): "launchTemplate.id",
    (types.CLUSTER, "kubernetesNetworkConfig"): "kubernetesNetworkConfig.elasticLoadBalancing",
}
"""Where in a field with parts the id of another resource stands."""

ROLLING = frozenset({"launchTemplate.version", "releaseVersion", "version"})
"""Fields of a node group that EKS applies by replacing every node, in place of the group."""

SCALE_SET_LABELS = "values.scaleSetLabels"
"""Of a runner scale set's release. GitHub takes labels only when a set is made, so the program replaces it."""


def effect(type_: str, keys: Sequence[str]) -> Effect:
    """Return the effect of a change at this path. The longest path that is listed decides."""
    type_fields = TYPES.get(type_, _KUBERNETES_OBJECT if type_.startswith("kubernetes:") else None)
    if type_fields is None:
        return "unknown"
    for length in range(len(keys), 0, -1):
        path = ".".join(keys[:length])
        if path in type_fields.replace:
            return "replace"
        if path in type_fields.update:
            return "update"
    return "unknown"


def reference(type_: str, field: str) -> tuple[str, ...]:
    """Return the path in `field` that names another resource."""
    if field == "metadata" and type_.startswith("kubernetes:"):
        return ("metadata", "namespace")
    return tuple(_REFERENCES.get((type_, field), field).split("."))


def makes_version(field: str) -> bool:
    """Return whether a change of this field of a launch template makes a new version of it."""
    return field in _VERSIONED


_KUBERNETES_OBJECT = _fields(_NAMED, _METADATA)
_VERSIONED = frozenset(_LAUNCH_TEMPLATE_VERSIONED.split())

"""Type tokens of the resources that rules, costs and comparisons of plans know, and the facts of each type."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
METRIC_ALARM = "aws:cloudwatch/metricAlarm:MetricAlarm"
DYNAMODB_TABLE = "aws:dynamodb/table:Table"
EBS_VOLUME = "aws:ebs/volume:Volume"
AMI_COPY = "aws:ec2/amiCopy:AmiCopy"
AMI_LAUNCH_PERMISSION = "aws:ec2/amiLaunchPermission:AmiLaunchPermission"
DEFAULT_SECURITY_GROUP = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
ELASTIC_IP = "aws:ec2/eip:Eip"
FLOW_LOG = "aws:ec2/flowLog:FlowLog"
INSTANCE = "aws:ec2/instance:Instance"
KEY_PAIR = "aws:ec2/keyPair:KeyPair"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
NAT_GATEWAY = "aws:ec2/natGateway:NatGateway"
ROUTE = "aws:ec2/route:Route"
ROUTE_TABLE_ASSOCIATION = "aws:ec2/routeTableAssociation:RouteTableAssociation"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
SECURITY_GROUP_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
SUBNET = "aws:ec2/subnet:Subnet"
VPC = "aws:ec2/vpc:Vpc"
VPC_ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
REPOSITORY = "aws:ecr/repository:Repository"
REPOSITORY_POLICY = "aws:ecr/repositoryPolicy:RepositoryPolicy"
PUBLIC_REPOSITORY = "aws:ecrpublic/repository:Repository"
EFS_FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"
ACCESS_ENTRY = "aws:eks/accessEntry:AccessEntry"
ADDON = "aws:eks/addon:Addon"
ACCESS_POLICY_ASSOCIATION = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
CLUSTER = "aws:eks/cluster:Cluster"
POD_IDENTITY_ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
LUSTRE_FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
GROUP_POLICY = "aws:iam/groupPolicy:GroupPolicy"
GROUP_POLICY_ATTACHMENT = "aws:iam/groupPolicyAttachment:GroupPolicyAttachment"
INSTANCE_PROFILE = "aws:iam/instanceProfile:InstanceProfile"
OPEN_ID_CONNECT_PROVIDER = "aws:iam/openIdConnectProvider:OpenIdConnectProvider"
IAM_POLICY = "aws:iam/policy:Policy"
POLICY_ATTACHMENT = "aws:iam/policyAttachment:PolicyAttachment"
ROLE = "aws:iam/role:Role"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
ROLE_POLICY_ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
USER_POLICY = "aws:iam/userPolicy:UserPolicy"
USER_POLICY_ATTACHMENT = "aws:iam/userPolicyAttachment:UserPolicyAttachment"
IMAGE_COMPONENT = "aws:imagebuilder/component:Component"
DISTRIBUTION_CONFIGURATION = "aws:imagebuilder/distributionConfiguration:DistributionConfiguration"
IMAGE_PIPELINE = "aws:imagebuilder/imagePipeline:ImagePipeline"
IMAGE_RECIPE = "aws:imagebuilder/imageRecipe:ImageRecipe"
INFRASTRUCTURE_CONFIGURATION = "aws:imagebuilder/infrastructureConfiguration:InfrastructureConfiguration"
KMS_KEY = "aws:kms/key:Key"
BUCKET = "aws:s3/bucket:Bucket"
BUCKET_V2 = "aws:s3/bucketV2:BucketV2"
SECRETS_MANAGER_SECRET = "aws:secretsmanager/secret:Secret"  # noqa: S105 - a type
TOPIC = "aws:sns/topic:Topic"
TOPIC_POLICY = "aws:sns/topicPolicy:TopicPolicy"
QUEUE = "aws:sqs/queue:Queue"
QUEUE_POLICY = "aws:sqs/queuePolicy:QueuePolicy"
SECURITY_GROUP_EGRESS_RULE = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
SECURITY_GROUP_INGRESS_RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"

VALIDATING_ADMISSION_POLICY = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
VALIDATING_ADMISSION_POLICY_BINDING = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding"
CUSTOM_RESOURCE_DEFINITION = "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinitionPatch"
DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
CRON_JOB = "kubernetes:batch/v1:CronJob"
JOB = "kubernetes:batch/v1:Job"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
NAMESPACE = "kubernetes:core/v1:Namespace"
POD = "kubernetes:core/v1:Pod"
SECRET = "kubernetes:core/v1:Secret"  # noqa: S105 - a type
SERVICE = "kubernetes:core/v1:Service"
RELEASE = "kubernetes:helm.sh/v3:Release"
NETWORK_POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
RAY_SERVICE = "kubernetes:ray.io/v1:RayService"
CLUSTER_ROLE = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole"
CLUSTER_ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding"
KUBERNETES_ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding"
STORAGE_CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"


@cache
def facts() -> dict[str, Any]:
    """Return `types` and `free_prefixes`. Of a type: `cost`, its kind and why; the fields whose change replaces it and
    those that are updated in place, as dotted paths of the document's names that speak for all below them.
    """
    document: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return document

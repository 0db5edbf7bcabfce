"""The EKS control plane with its first nodes, or a cluster that is there already."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s

from infra.cluster.node import launch_template
from infra.component import POD_IDENTITY, Component, allow, assumed_by, policy
from infra.manifests import manifest
from infra.network.vpc import Network
from paddock.catalog import eks_addons
from paddock.fleet import ExistingCluster, Fleet, KubeconfigCluster, NewCluster, nodes
from paddock.fleet.model.pool import GP3_IOPS, GP3_THROUGHPUT

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")

_CNI_POLICY = "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"
_NODE_POLICIES = (
    "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy",
    "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryPullOnly",
)
_SESSION_MANAGER = policy(
    # AWS's own AmazonSSMManagedInstanceCore also reads every parameter of the account.
    allow(
        [
            "ssm:UpdateInstanceInformation",
            *(f"ssmmessages:{verb}{channel}Channel" for verb in ("Create", "Open") for channel in ("Control", "Data")),
        ]
    )
)
_ACCESS_POLICIES = {
    "cluster-admin": "AmazonEKSClusterAdminPolicy",
    "admin": "AmazonEKSAdminPolicy",
    "edit": "AmazonEKSEditPolicy",
    "view": "AmazonEKSViewPolicy",
}


class Cluster(Component):
    """A Kubernetes API to put things on, and what nodes need to join it."""

    provider: k8s.Provider
    """For every Kubernetes object of the fleet."""
    eks_name: pulumi.Input[str]
    """Name of the EKS cluster. Unset for one that only a kubeconfig reaches."""
    join: dict[str, pulumi.Input[str]]
    """What a node with an image of our own needs: name, apiServerEndpoint, certificateAuthority, cidr."""
    node_role: aws.iam.Role
    kubeconfig: pulumi.Input[str]
    """Holds no secret where it is ours: its user asks AWS for a token."""
    command: pulumi.Output[str]
    """The command that gives a person access."""
    identity: list[pulumi.Resource]
    """What hands roles to pods; nothing in a cluster of somebody else, which has its own."""

    def __init__(
        self, name: str, fleet: Fleet, network: Network | None, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, opts)
        self.fleet = fleet
        self.ready: list[pulumi.Resource] = []
        self.identity = []
        match fleet.cluster:
            case KubeconfigCluster() as cluster:
                self._reach(cluster)
            case ExistingCluster() as cluster:
                self._adopt(cluster)
            case NewCluster() as cluster:
                assert network is not None  # noqa: S101 - a fleet with a cluster of its own has a network
                self._create(cluster, network)
        self.register_outputs({"command": self.command})

    def _reach(self, cluster: KubeconfigCluster) -> None:
        self.kubeconfig = cluster.kubeconfig
        self.provider = k8s.Provider(
            f"{self.name}-kubernetes", kubeconfig=cluster.kubeconfig, context=cluster.context, opts=self.child()
        )
        context = f" --context {cluster.context}" if cluster.context else ""
        self.command = pulumi.Output.from_input(f"kubectl --kubeconfig {cluster.kubeconfig}{context} get nodes")

    def _adopt(self, cluster: ExistingCluster) -> None:
        adopted = aws.eks.get_cluster_output(name=cluster.existing, opts=pulumi.InvokeOutputOptions(parent=self))
        self.eks_name = cluster.existing
        self._connect(
            adopted.apply(lambda c: c.endpoint),
            adopted.apply(lambda c: c.certificate_authorities[0].data),
            adopted.apply(lambda c: c.kubernetes_network_configs[0].service_ipv4_cidr),
        )
        # Whether that cluster's CNI has a role of its own is not known, and without one nothing runs on a node.
        self.node_role = self._node_role(_CNI_POLICY)
        self.ready += self.permissions

    def _create(self, cluster: NewCluster, network: Network) -> None:
        name, region = self.fleet.name, self.fleet.region
        # The component makes no log group; EKS would make one that keeps everything for ever, in clear text.
        group = f"/aws/eks/{name}/cluster"
        logs = self.log_group(f"{self.name}-logs", f"Control-plane logs of {name}", region, cluster.log_days, group)
        secrets_key = self.key(f"{self.name}-secrets", f"Kubernetes secrets of {name}")
        control_plane = eks.Cluster(
            self.name,
            name=name,
            version=cluster.version,
            vpc_id=network.vpc_id,
            private_subnet_ids=network.subnet_ids(cluster.zones),
            skip_default_node_group=True,
            skip_default_security_groups=True,
            authentication_mode=eks.AuthenticationMode.API,
            access_entries=_access_entries(cluster),
            # Pod Identity needs no OIDC provider, and its thumbprint would be fetched at every preview.
            create_oidc_provider=False,
            enabled_cluster_log_types=list(LOG_TYPES),
            encryption_config_key_arn=secrets_key.arn,
            endpoint_private_access=True,
            public_access_cidrs=list(cluster.endpoint.cidrs) if cluster.endpoint.public else None,
            kubernetes_service_ip_address_range=cluster.service_cidr,
            kube_proxy_addon_options={"version": eks_addons()[cluster.version]["kube-proxy"]},
            vpc_cni_options={
                "addon_version": eks_addons()[cluster.version]["vpc-cni"],
                "enable_network_policy": True,
                "log_level": "INFO",
            },
            upgrade_policy={"support_type": cluster.support.upper()},
            deletion_protection=cluster.deletion_protection,
            tags=dict(self.fleet.tags),
            # Nodes and pods need the way out from their first minute to their last: without it, `destroy` would wait
            # for ever for ARC to sign its scale sets off at GitHub.
            opts=self.child(depends_on=[logs, *network.ways_out], transforms=[_harden(cluster.endpoint.public)]),
        )
        eks_cluster = control_plane.eks_cluster
        self.eks_name = eks_cluster.name
        if not any(entry.may_deploy for entry in cluster.access.values()):
            self.ready += self._deployer_access()
        self._connect(
            eks_cluster.endpoint,
            eks_cluster.certificate_authority.apply(lambda ca: ca.data or ""),
            cluster.service_cidr,
        )
        self.node_role = self._node_role()
        self._pod_identity(network.vpc_id)
        self._system_nodes(cluster, network)

    def _node_role(self, *more: str) -> aws.iam.Role:
        return self.role(
            f"{self.name}-node", assumed_by("ec2.amazonaws.com"), [*_NODE_POLICIES, *more], _SESSION_MANAGER
        )

    def _pod_identity(self, vpc: pulumi.Input[str]) -> None:
        """The agent comes before the nodes: none is ready without the CNI, which gets its role from it.

        The CNI's role is not the node's, and not what AWS gives it: root on a node has it by the token of aws-node.
        """
        formerly = f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::paddock:infra:AddOns::addons"
        agent = aws.eks.Addon(
            f"{self.name}-eks-pod-identity-agent",
            cluster_name=self.eks_name,
            addon_name="eks-pod-identity-agent",
            addon_version=eks_addons()[self.fleet.cluster.version]["eks-pod-identity-agent"],
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            opts=self.child(aliases=[pulumi.Alias(name="addons-eks-pod-identity-agent", parent=formerly)]),
        )
        rights = pulumi.Output.from_input(vpc).apply(lambda vpc_id: cni_policy(self.fleet, vpc_id))
        role = self.role(f"{self.name}-cni", POD_IDENTITY, inline=rights)
        needs = [agent, *self.permissions]
        cni = self.pod_identity(self.eks_name, "kube-system", "aws-node", role, needs, f"{self.name}-cni")
        self.identity = [agent, cni]

    def _deployer_access(self) -> list[pulumi.Resource]:
        """The creator of the cluster may put things on it; nobody else could, with no admin in the fleet."""
        caller = aws.get_caller_identity_output(opts=pulumi.InvokeOutputOptions(parent=self))
        session = aws.iam.get_session_context_output(
            arn=caller.apply(lambda identity: identity.arn), opts=pulumi.InvokeOutputOptions(parent=self)
        )
        entry = aws.eks.AccessEntry(
            f"{self.name}-deployer",
            cluster_name=self.eks_name,
            principal_arn=session.apply(lambda context: context.issuer_arn),
            # A laptop and CI deploy with different roles; the first one stays.
            opts=self.child(ignore_changes=["principalArn"]),
        )
        association = aws.eks.AccessPolicyAssociation(
            f"{self.name}-deployer",
            cluster_name=self.eks_name,
            principal_arn=entry.principal_arn,
            policy_arn=_policy_arn("cluster-admin"),
            access_scope={"type": "cluster"},
            opts=self.child(),
        )
        return [association]

    def _connect(
        self, endpoint: pulumi.Input[str], authority: pulumi.Input[str], service_cidr: pulumi.Input[str]
    ) -> None:
        self.join = {
            "name": self.eks_name,
            "apiServerEndpoint": endpoint,
            "certificateAuthority": authority,
            "cidr": service_cidr,
        }
        region = self.fleet.region
        self.kubeconfig = pulumi.Output.json_dumps(
            manifest("kubeconfig", name=self.eks_name, endpoint=endpoint, authority=authority, region=region)
        )
        self.provider = k8s.Provider(
            f"{self.name}-kubernetes",
            kubeconfig=self.kubeconfig,
            # Without it an unknown kubeconfig previews as the replacement of every object in the cluster.
            cluster_identifier=self.eks_name,
            opts=self.child(depends_on=self.ready),
        )
        self.command = pulumi.Output.concat("aws eks update-kubeconfig --name ", self.eks_name, f" --region {region}")

    def _system_nodes(self, cluster: NewCluster, network: Network) -> None:
        system = cluster.system
        template = launch_template(
            self,
            f"{self.name}-system",
            self.fleet,
            devices={"/dev/xvda": {"size": system.disk // 1024, "iops": GP3_IOPS, "throughput": GP3_THROUGHPUT}},
        )
        self.system_nodes = aws.eks.NodeGroup(
            f"{self.name}-system",
            cluster_name=self.eks_name,
            node_role_arn=self.node_role.arn,
            subnet_ids=network.subnet_ids(),
            ami_type="AL2023_x86_64_STANDARD",
            version=cluster.version,
            release_version=self.fleet.eks_release,
            capacity_type="ON_DEMAND",
            instance_types=list(system.instances),
            scaling_config={
                "min_size": system.nodes.min,
                "max_size": system.nodes.max,
                "desired_size": max(system.nodes.min, 1),
            },
            labels=nodes.system_selector(self.fleet),
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            update_config={"max_unavailable": 1},
            node_repair_config={"enabled": True},
            tags=dict(self.fleet.tags),
            # A node that lost its permissions before its end leaves network interfaces that nothing deletes.
            opts=self.child(
                ignore_changes=["scalingConfig.desiredSize"], depends_on=[*self.permissions, *self.identity]
            ),
        )
        # CoreDNS stays outside the eks component: inside, it would wait for nodes that wait for the component.
        coredns = aws.eks.Addon(
            f"{self.name}-coredns",
            cluster_name=self.eks_name,
            addon_name="coredns",
            addon_version=eks_addons()[cluster.version]["coredns"],
            configuration_values=json.dumps({"nodeSelector": nodes.system_selector(self.fleet)}),
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            opts=self.child(depends_on=[self.system_nodes]),
        )
        self.ready += [self.system_nodes, coredns]


def _harden(public: bool) -> pulumi.ResourceTransform:
    """Set what the component has no argument for: no admin by mere creation, and the public endpoint said outright.

    And protect the cluster alone: on the component, people's access entries would take it over, and could not go. A
    policy that gets other namespaces must go first: EKS tells two associations by principal and policy, and the removal
    of the old one would take the new one.
    """

    def harden(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        if args.type_ == "aws:eks/accessPolicyAssociation:AccessPolicyAssociation":
            first = pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(delete_before_replace=True))
            return pulumi.ResourceTransformResult(props=args.props, opts=first)
        if args.type_ != "aws:eks/cluster:Cluster":
            return None
        props: dict[str, Any] = dict(args.props)
        props["accessConfig"] = {**props.get("accessConfig", {}), "bootstrapClusterCreatorAdminPermissions": False}
        # Passed as an argument it would make every `up` poll the API's health from the operator's machine.
        props["vpcConfig"] = {**props.get("vpcConfig", {}), "endpointPublicAccess": public}
        protected = pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(protect=True))
        return pulumi.ResourceTransformResult(props=props, opts=protected)

    return harden


def _access_entries(cluster: NewCluster) -> dict[str, Any]:
    return {
        name: {
            "principal_arn": entry.principal,
            "access_policies": {
                # One key for all: with the policy's name in it, two entries could make one resource name.
                "policy": {
                    "policy_arn": _policy_arn(entry.policy),
                    "access_scope": {"type": "namespace", "namespaces": list(entry.namespaces)}
                    if entry.namespaces
                    else {"type": "cluster"},
                }
            },
        }
        for name, entry in cluster.access.items()
    }


def cni_policy(fleet: Fleet, vpc: str) -> str:
    """Return what the CNI does in a VPC with a fleet's instances; AmazonEKS_CNI_Policy allows it everywhere.

    Actions are those of github.com/aws/amazon-vpc-cni-k8s, docs/iam-policy.md; which resources and condition keys each
    has, the Service Authorization Reference of EC2 says (both read 2026-11-27).
    """
    here = {"ArnEquals": {"ec2:Vpc": f"arn:aws:ec2:{fleet.region}:*:vpc/{vpc}"}}
    ours = {"StringEquals": {"aws:ResourceTag/paddock:fleet": fleet.name}}
    made = {"StringEquals": {"ec2:CreateAction": "CreateNetworkInterface"}}
    interface, instance, group, subnet = (
        f"arn:aws:ec2:{fleet.region}:*:{kind}/*"
        for kind in ("network-interface", "instance", "security-group", "subnet")
    )
    attaching = ["ec2:AttachNetworkInterface", "ec2:DetachNetworkInterface", "ec2:ModifyNetworkInterfaceAttribute"]
    addresses = ["ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses", "ec2:DeleteNetworkInterface"]
    seen = ("Instances", "InstanceTypes", "NetworkInterfaces", "SecurityGroups", "Subnets", "Tags")
    return policy(
        allow([f"ec2:Describe{what}" for what in seen]),
        # One that is being made is in no VPC yet: its subnet and groups are.
        allow(["ec2:CreateNetworkInterface"], interface),
        allow(["ec2:CreateTags"], interface, Condition=made),
        allow(["ec2:CreateNetworkInterface"], [subnet, group], Condition=here),
        allow([*attaching, *addresses, "ec2:CreateTags"], interface, Condition=here),
        allow(["ec2:ModifyNetworkInterfaceAttribute"], [subnet, group], Condition=here),
        allow(attaching, instance, Condition=ours),
    )


def _policy_arn(policy: str) -> str:
    return f"arn:aws:eks::aws:cluster-access-policy/{_ACCESS_POLICIES[policy]}"


def kubernetes_elsewhere(fleet: Fleet) -> k8s.Provider:
    """The cluster of the stack that holds it. Raises RunError where that stack has none."""
    holder = fleet.layers.cluster

    def there(kubeconfig: Any) -> str:
        if kubeconfig is None:
            raise pulumi.RunError(
                f"paddock:layers: {holder} has no cluster\n    fix: pulumi up of that stack, which says cluster: here"
            )
        return str(kubeconfig)

    return k8s.Provider(
        "kubernetes",
        kubeconfig=pulumi.StackReference(holder).get_output("kubeconfig").apply(there),
        cluster_identifier=fleet.cluster_name,
    )

"""The VPC: private subnets for nodes, a way out through NAT, a short way to S3, nothing in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws

from infra.component import Component, assumed_by, writes_logs
from paddock.fleet import ExistingNetwork, Fleet, NewNetwork


def ranges(owner: Component, fleet: Fleet) -> pulumi.Input[Sequence[str]]:
    """Ranges of the fleet's VPC, secondary ones included; none where the fleet names no VPC."""
    if isinstance(fleet.network, NewNetwork):
        return [fleet.network.cidr]
    if not fleet.owns_nodes:
        return []
    vpc = aws.ec2.get_vpc_output(id=fleet.network.existing.vpc, opts=pulumi.InvokeOutputOptions(parent=owner))
    return vpc.apply(lambda answer: [association.cidr_block for association in answer.cidr_block_associations])


class Network(Component):
    """Made here, or adopted. What others need: the VPC's id, and the private subnets by zone."""

    vpc_id: pulumi.Input[str]
    cidr: str | None
    """Range of the VPC; None where an adopted one's is not known."""
    subnets: Mapping[str, pulumi.Input[str]]
    """Zone -> private subnet. An adopted network's subnets are under their own ids."""
    ways_out: list[pulumi.Resource]
    """Routes and endpoints. A subnet's id says nothing of them, so who needs them names them."""

    def __init__(self, name: str, fleet: Fleet, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        self.fleet = fleet
        self.ways_out = []
        if isinstance(fleet.network, ExistingNetwork):
            adopted = fleet.network.existing
            self.vpc_id, self.cidr, self.subnets = adopted.vpc, None, {subnet: subnet for subnet in adopted.subnets}
        else:
            self._create(fleet.network)
        self.register_outputs({"vpcId": self.vpc_id, "subnetIds": list(self.subnets.values())})

    def subnet_ids(self, zones: Sequence[str] = ()) -> list[pulumi.Input[str]]:
        """Private subnets in `zones`, or all of them."""
        return [subnet for zone, subnet in self.subnets.items() if not zones or zone in zones]

    def _create(self, network: NewNetwork) -> None:
        zones = network.zone_names(self.fleet.region)
        private, public = network.subnets()
        vpc = aws.ec2.Vpc(
            f"{self.name}-vpc",
            cidr_block=network.cidr,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags={"Name": self.fleet.name},
            opts=self.child(protect=True),
        )
        self.vpc_id, self.cidr = vpc.id, network.cidr
        # AWS's default group lets its members talk to each other and out; nothing of ours may fall into that.
        aws.ec2.DefaultSecurityGroup(f"{self.name}-default-sg", vpc_id=vpc.id, ingress=[], egress=[], opts=self.child())

        gateways = self._ways_out(network, vpc, zones, public)
        tables: dict[str, aws.ec2.RouteTable] = {}
        subnets: dict[str, pulumi.Input[str]] = {}
        for zone, cidr in zip(zones, private, strict=True):
            subnet = aws.ec2.Subnet(
                f"{self.name}-private-{zone}",
                vpc_id=vpc.id,
                availability_zone=zone,
                cidr_block=cidr,
                map_public_ip_on_launch=False,
                tags={"Name": f"{self.fleet.name}-private-{zone}", "kubernetes.io/role/internal-elb": "1"},
                opts=self.child(),
            )
            table = aws.ec2.RouteTable(f"{self.name}-private-{zone}", vpc_id=vpc.id, opts=self.child())
            self._associate(f"{self.name}-private-{zone}", subnet, table)
            if gateways:
                out = aws.ec2.Route(
                    f"{self.name}-private-{zone}-out",
                    route_table_id=table.id,
                    destination_cidr_block="0.0.0.0/0",
                    nat_gateway_id=gateways.get(zone, next(iter(gateways.values()))).id,
                    opts=self.child(),
                )
                self.ways_out.append(out)
            subnets[zone], tables[zone] = subnet.id, table
        self.subnets = subnets
        self._endpoints(network, vpc, tables)
        self._flow_logs(network, vpc)

    def _ways_out(
        self, network: NewNetwork, vpc: aws.ec2.Vpc, zones: Sequence[str], public: Sequence[str]
    ) -> dict[str, aws.ec2.NatGateway]:
        """NAT gateways by the zone they are in."""
        if network.nat == "none":
            return {}
        internet = aws.ec2.InternetGateway(f"{self.name}-internet", vpc_id=vpc.id, opts=self.child())
        table = aws.ec2.RouteTable(f"{self.name}-public", vpc_id=vpc.id, opts=self.child())
        route = aws.ec2.Route(
            f"{self.name}-public-out",
            route_table_id=table.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=internet.id,
            opts=self.child(),
        )
        gateways: dict[str, aws.ec2.NatGateway] = {}
        for zone, cidr in zip(zones, public, strict=True):
            if network.nat == "single" and gateways:
                break
            subnet = aws.ec2.Subnet(
                f"{self.name}-public-{zone}",
                vpc_id=vpc.id,
                availability_zone=zone,
                cidr_block=cidr,
                map_public_ip_on_launch=False,
                tags={"Name": f"{self.fleet.name}-public-{zone}"},
                opts=self.child(),
            )
            self._associate(f"{self.name}-public-{zone}", subnet, table)
            address = aws.ec2.Eip(f"{self.name}-nat-{zone}", domain="vpc", opts=self.child())
            gateways[zone] = aws.ec2.NatGateway(
                f"{self.name}-nat-{zone}",
                subnet_id=subnet.id,
                allocation_id=address.id,
                tags={"Name": f"{self.fleet.name}-{zone}"},
                # One gateway at a time can have the address.
                opts=self.child(depends_on=[route], delete_before_replace=True),
            )
        return gateways

    def _associate(self, name: str, subnet: aws.ec2.Subnet, table: aws.ec2.RouteTable) -> None:
        self.ways_out.append(
            aws.ec2.RouteTableAssociation(name, subnet_id=subnet.id, route_table_id=table.id, opts=self.child())
        )

    def _endpoints(self, network: NewNetwork, vpc: aws.ec2.Vpc, tables: Mapping[str, aws.ec2.RouteTable]) -> None:
        region = self.fleet.region
        # ECR keeps image layers in S3: through the gateway a 10 GB pull costs nothing, through NAT 0.45 USD.
        layers = aws.ec2.VpcEndpoint(
            f"{self.name}-s3",
            vpc_id=vpc.id,
            service_name=f"com.amazonaws.{region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[table.id for table in tables.values()],
            opts=self.child(),
        )
        self.ways_out.append(layers)
        if not network.endpoints:
            return
        group = aws.ec2.SecurityGroup(
            f"{self.name}-endpoints",
            vpc_id=vpc.id,
            description="HTTPS from the VPC to its interface endpoints",
            ingress=[
                {
                    "protocol": "tcp",
                    "from_port": 443,
                    "to_port": 443,
                    "cidr_blocks": [network.cidr],
                    "description": "HTTPS from the VPC",
                }
            ],
            opts=self.child(),
        )
        for service in network.endpoints:
            endpoint = aws.ec2.VpcEndpoint(
                f"{self.name}-{service}",
                vpc_id=vpc.id,
                service_name=f"com.amazonaws.{region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(self.subnets.values()),
                security_group_ids=[group.id],
                opts=self.child(),
            )
            self.ways_out.append(endpoint)

    def _flow_logs(self, network: NewNetwork, vpc: aws.ec2.Vpc) -> None:
        key = self.key(f"{self.name}-logs", f"Flow logs of {self.fleet.name}", logs_of=self.fleet.region)
        group = aws.cloudwatch.LogGroup(
            f"{self.name}-flow", retention_in_days=network.flow_log_days, kms_key_id=key.arn, opts=self.child()
        )
        write = writes_logs(group, "logs:DescribeLogStreams")
        role = self.role(f"{self.name}-flow", assumed_by("vpc-flow-logs.amazonaws.com"), inline=write)
        aws.ec2.FlowLog(
            f"{self.name}-flow",
            vpc_id=vpc.id,
            traffic_type="ALL",
            log_destination=group.arn,
            iam_role_arn=role.arn,
            opts=self.child(),
        )

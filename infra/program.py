"""The whole system on one screen: read it from top to bottom as the fleet is built."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra import config
from infra.arc.runners import RunnerController, RunnerScaleSet
from infra.cluster.addons import AddOns
from infra.cluster.control_plane import Cluster, kubernetes_elsewhere
from infra.gpu.autoscaler import Autoscaler
from infra.gpu.device_plugin import DevicePlugin
from infra.gpu.pool import GpuPool
from infra.images.ami_pipeline import AmiPipeline
from infra.images.push import ImagePush
from infra.images.registry import Registry
from infra.monitoring.cloudwatch import CloudWatchMetrics
from infra.monitoring.dcgm import Monitoring
from infra.monitoring.job_logs import JobLogs
from infra.network.vpc import Network
from infra.serving.serving import ModelServing
from paddock.fleet import Fleet


def main() -> None:
    """Entry point of `pulumi up`, and of `inv plan`."""
    build(config.fleet())


def build(fleet: Fleet) -> None:
    """Declare every resource of the fleet's layers that this stack holds."""
    cloud = aws.Provider("aws", region=fleet.region, default_tags={"tags": fleet.aws_tags})
    in_aws = pulumi.ResourceOptions(providers=[cloud])
    network = Network("network", fleet, opts=in_aws) if fleet.makes_network else None

    if fleet.holds("images"):
        registry = Registry("registry", fleet, opts=in_aws)
        pipeline = AmiPipeline("gpu-ami", fleet, network, opts=in_aws) if fleet.images.ami.enabled else None
        push = fleet.images.push
        github = ImagePush("image-push", fleet, push, registry, pipeline, opts=in_aws) if push else None
        pulumi.export("registry", registry.url)
        if github:
            pulumi.export("imagePushRole", github.role_arn)
            if github.ami_role_arn:
                pulumi.export("amiBuildRole", github.ami_role_arn)

    cluster = Cluster("cluster", fleet, network, opts=in_aws) if fleet.holds("cluster") else None
    if cluster:
        in_cluster = pulumi.ResourceOptions(providers=[cloud, cluster.provider])
        if network:
            AddOns("addons", fleet, cluster, opts=in_cluster)
            for pool in fleet.pools.values():
                GpuPool(pool.name, pool, fleet, cluster, network, opts=in_aws)
            Autoscaler("autoscaler", fleet, cluster, opts=in_cluster)
        if fleet.installs_device_plugin:
            DevicePlugin("device-plugin", fleet, cluster, opts=in_cluster)
        if fleet.monitoring.enabled:
            Monitoring("monitoring", fleet, cluster, opts=in_cluster)
        if fleet.sends_to_cloudwatch:
            CloudWatchMetrics("cloudwatch", fleet, fleet.sends_to_cloudwatch, cluster, opts=in_cluster)
        if fleet.logs.jobs.to == "cloudwatch":
            logs = JobLogs("job-logs", fleet, cluster, opts=in_cluster)
            pulumi.export("jobLogs", logs.group.name)  # for `aws logs tail`
        if fleet.serving:
            ModelServing("serving", fleet, fleet.serving, cluster, opts=in_cluster)
        pulumi.export("kubeconfigCommand", cluster.command)
        pulumi.export("kubeconfig", cluster.kubeconfig)

    if fleet.holds("runners"):
        kubernetes = cluster.provider if cluster else kubernetes_elsewhere(fleet)
        in_arc = pulumi.ResourceOptions(providers=[cloud, kubernetes])
        controller = RunnerController("arc", fleet, cluster.ready if cluster else [], opts=in_arc)
        for runner in fleet.runners.values():
            RunnerScaleSet(runner.name, runner, fleet, controller, opts=in_arc)
        asked = {name: list(runner.effective_labels) for name, runner in fleet.runners.items()}
        lines = {name: f"runs-on: [{', '.join(labels)}]" for name, labels in asked.items()}
        pulumi.export("runners", {name: {"labels": asked[name], "runsOn": lines[name]} for name in asked})

"""Faults from the pod to the node group: admission, scheduler, AWS and cluster-autoscaler."""

from __future__ import annotations

from tests.support.chain_fault import fault
from tests.support.chain_objects import POD, RUNNERS, container
from tests.support.chain_world import World

QUOTA = (
    "Could not launch Spot Instances. MaxSpotInstanceCountExceeded - Max spot instance count exceeded."
    " Launching EC2 instance failed."
)
"""What Auto Scaling says of a spot quota of vCPUs that is used up."""
NO_CAPACITY = (
    "We currently do not have sufficient g4dn.xlarge capacity in the Availability Zone you requested (us-west-2a)."
    " Launching EC2 instance failed."
)
NO_SPOT = (
    "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity due to your request"
    " configuration. Launching EC2 instance failed."
)

# Pod: the guide's "runners can't access GPU"; admission; quota.


@fault("pod", "pod-refused")
def admission_refuses_the_pod(world: World) -> None:
    world.no_runner()
    message = 'Failed to create the pod: pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged'
    world.another(POD, phase="Failed", reason="InvalidPod", message=message)


@fault("pod", "quota-used-up")
def quota_is_used_up(world: World) -> None:
    world.no_runner()
    world.another(POD, phase="Pending")
    figures = {"hard": {"requests.nvidia.com/gpu": "1"}, "used": {"requests.nvidia.com/gpu": "1"}}
    world.objects.append(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "pools", "namespace": RUNNERS},
            "spec": {"hard": figures["hard"]},
            "status": figures,
        }
    )


@fault("pod", "pod-without-gpu")
def pod_asks_for_no_gpu(world: World) -> None:
    world.claim("resources")
    world.claim("at work")
    resources = world.pod["spec"]["containers"][0]["resources"]
    for part in ("requests", "limits"):
        resources[part].pop("nvidia.com/gpu")


# Scheduler: 1730, hooks 173, 140; the guide's toleration.


@fault("scheduler", "taint-not-tolerated")
def pod_does_not_tolerate_the_taint(world: World) -> None:
    world.unplaced("0/2 nodes are available: 1 node(s) had untolerated taint(s)")["spec"]["tolerations"] = []


@fault("scheduler", "taint-not-tolerated", "job-pods")
def job_pod_does_not_tolerate_the_taint(world: World) -> None:
    """The template of the container hook has no toleration: the runner's own pod is well."""
    world.unplaced("0/2 nodes are available: 1 node(s) had untolerated taint(s)")["spec"]["tolerations"] = []


@fault("scheduler", "selector-matches-no-pool")
def pod_selects_what_no_pool_has(world: World) -> None:
    world.unplaced()["spec"]["nodeSelector"] = {"paddock.dev/pool": "a100"}


@fault("scheduler", "selector-matches-no-pool", "job-pods")
def job_pod_selects_what_no_pool_has(world: World) -> None:
    world.unplaced()["spec"]["nodeSelector"] = {"paddock.dev/pool": "a100"}


@fault("scheduler", "pod-too-large")
def pod_is_larger_than_every_node(world: World) -> None:
    world.claim("resources")
    resources = world.unplaced()["spec"]["containers"][0]["resources"]
    for part in ("requests", "limits"):
        resources[part]["nvidia.com/gpu"] = 4


@fault("scheduler", "volume-not-bound")
def pod_names_a_claim_that_is_not_there(world: World) -> None:
    pod = world.unplaced('persistentvolumeclaim "data" not found')
    pod["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data"}})


@fault("scheduler", "pod-gated")
def pod_waits_at_a_gate(world: World) -> None:
    pod = world.unplaced("Scheduling is blocked due to non-empty scheduling gates")
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    pod["status"]["conditions"][0]["reason"] = "SchedulingGated"


# Node group: sirius 1258, fvdb-core 761; quotas; eks-ami 2323.


@fault("node-group", "no-capacity")
def aws_has_no_such_instance(world: World) -> None:
    world.pending()
    world.launch(NO_CAPACITY)


@fault("node-group", "no-capacity", "fallback")
def neither_spot_nor_fallback_is_to_be_had(world: World) -> None:
    world.pending()
    world.launch(NO_SPOT)
    world.launch(NO_CAPACITY, group=world.scaling[1]["AutoScalingGroupName"])


@fault("node-group", "no-quota")
def quota_of_vcpu_is_zero(world: World) -> None:
    world.pending()
    world.bought(6)
    world.launch(QUOTA)


@fault("node-group", "no-addresses")
def subnet_has_no_address(world: World) -> None:
    world.pending()
    world.bought(6)
    world.launch(
        "There are not enough free addresses in subnet 'subnet-0a' to satisfy the requested number of instances."
        " Launching EC2 instance failed."
    )


@fault("node-group", "no-spot-right")
def account_has_no_role_for_spot(world: World) -> None:
    world.pending()
    world.bought(6)
    world.launch(
        "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances."
        " Launching EC2 instance failed."
    )


@fault("node-group", "launch-template-broken")
def machine_image_is_gone(world: World) -> None:
    world.pending()
    issue = {"code": "Ec2LaunchTemplateInvalidConfiguration", "message": "The image id '[ami-0]' does not exist"}
    world.groups[0]["health"]["issues"] = [issue]
    world.groups[0]["status"] = "DEGRADED"


@fault("node-group", "no-disk-quota")
def quota_of_disks_is_used_up(world: World) -> None:
    """ebs-csi-driver 2512 has the words of the limit."""
    world.pending()
    world.bought(6)
    world.launch(
        "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason:"
        " Client.VolumeLimitExceeded: Volume limit exceeded. You have exceeded your maximum gp3 storage limit of 50 TiB"
    )


@fault("node-group", "account-validated")
def account_is_validated_for_the_region(world: World) -> None:
    """kore 585."""
    world.pending()
    world.bought(6)
    world.launch(
        "Your request for accessing resources in this region is being validated, and you will not be able to launch"
        " additional resources in this region until the validation is complete. Launching EC2 instance failed."
    )


@fault("node-group", "zone-lacks-type")
def zone_does_not_offer_the_type(world: World) -> None:
    """eks-ami 1530; simphera 85."""
    world.pending()
    world.bought(6)
    world.launch(
        "Could not launch On-Demand Instances. Unsupported - Your requested instance type (p2.xlarge) is not supported"
        " in your requested Availability Zone (eu-central-1c). Please retry your request by not specifying an"
        " Availability Zone or choosing eu-central-1a, eu-central-1b. Launching EC2 instance failed."
    )


@fault("node-group", "launch-failed")
def aws_gives_a_reason_that_nobody_knows(world: World) -> None:
    world.pending()
    world.launch("Instance became unhealthy while waiting for instance to be in InService state.")


@fault("node-group", "node-group-unhealthy")
def node_group_has_lost_its_cluster(world: World) -> None:
    world.pending()
    issue = {"code": "ClusterUnreachable", "message": "The API server could not be reached"}
    world.groups[0]["health"]["issues"] = [issue]
    world.groups[0]["status"] = "DEGRADED"


@fault("node-group", "pool-at-max")
def pool_has_all_its_nodes(world: World) -> None:
    world.unplaced()
    world.fill()
    world.refused("1 max node group size reached, 1 node(s) didn't match Pod's node affinity/selector")


@fault("node-group", "autoscaler-sees-no-fit")
def autoscaler_sees_nodes_without_gpus(world: World) -> None:
    world.pending()
    world.refused("1 Insufficient nvidia.com/gpu")


@fault("node-group", "autoscaler-backs-off")
def autoscaler_passes_over_the_group(world: World) -> None:
    """Another pool's group is at its max, which the message counts too."""
    world.pending()
    world.refused("1 max node group size reached, 1 in backoff after failed scale-up")


@fault("node-group", "autoscaler-down")
def autoscaler_does_not_run(world: World) -> None:
    world.pending()
    world.get("Deployment", "cluster-autoscaler-aws-cluster-autoscaler")["status"] = {}


# Image and container, of pods that ARC has deleted: 4102, 3700, 2721; runner 3768.


@fault("image-pull", "runner-program-missing")
def image_has_no_runner(world: World) -> None:
    world.failing(
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed:"
        ' exec: "/home/runner/run.sh": stat /home/runner/run.sh: no such file or directory'
    )


@fault("image-pull", "cuda-too-new")
def image_needs_a_newer_driver(world: World) -> None:
    world.failing(
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: nvidia-container-cli:"
        " requirement error: unsatisfied condition: cuda>=13.0, please update your driver"
    )


@fault("image-pull", "driver-in-image")
def image_was_built_with_the_driver(world: World) -> None:
    """nvidia-container-toolkit 289."""
    world.failing(
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: nvidia-container-cli:"
        " mount error: file creation failed: /run/x/rootfs/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1: file exists"
    )


@fault("image-pull", "driver-mismatch")
def driver_was_updated_under_the_node(world: World) -> None:
    """eks-ami 1697, 2417."""
    world.failing(
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: nvidia-container-cli:"
        " initialization error: nvml error: driver/library version mismatch"
    )


@fault("image-pull", "container-start")
def runner_has_failed_five_times(world: World) -> None:
    """After the sixth failure ARC deletes the runner, and makes another that fails alike."""
    world.failing("failed to create containerd task: failed to start shim: input/output error", times=5)


@fault("image-pull", "runner-program-missing")
def image_has_no_runner_and_the_next_pod_is_made(world: World) -> None:
    pod = world.pod
    world.failing('exec: "/home/runner/run.sh": stat /home/runner/run.sh: no such file or directory')
    pod["status"] = {"phase": "Pending", "containerStatuses": [container(waiting={"reason": "ContainerCreating"})]}
    world.objects.append(pod)


@fault("node", "pod-evicted")
def runner_is_evicted_for_its_disk(world: World) -> None:
    why = "Pod ephemeral local storage usage exceeds the total limit of containers 50Gi."
    world.failing(reason="Evicted", why=why)


@fault("device-plugin", "gpu-admission")
def kubelet_has_no_gpu_for_the_pod(world: World) -> None:
    why = (
        "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0"
    )
    world.failing(reason="UnexpectedAdmissionError", why=why)


@fault("device-plugin", "gpu-shares")
def runner_asks_for_two_shares_of_a_gpu(world: World) -> None:
    """device-plugin 929."""
    why = (
        "Allocate failed due to rpc error: code = Unknown desc = request for 'nvidia.com/gpu': invalid request: maximum"
        " request size for shared resources is 1; found 2, which is unexpected"
    )
    world.failing(reason="UnexpectedAdmissionError", why=why)

"""Runbooks of the alerts: what each one means, what to look at, and what ends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Runbook:
    """Text for whoever is called. The key of `RUNBOOKS` is the alert's name, and never changes."""

    meaning: str
    check: tuple[str, ...]
    """Commands that show more, in order."""
    fix: str


_EXPORTER = "kubectl -n monitoring get pods -o wide -l app.kubernetes.io/name=dcgm-exporter"
_GPUS_OF_NODES = "kubectl get nodes -o 'custom-columns=NAME:.metadata.name,GPUS:.status.allocatable.nvidia\\.com/gpu'"
_LISTENERS = "kubectl -n arc-systems get pods -l app.kubernetes.io/component=runner-scale-set-listener"
_LISTENER_LOG = "kubectl -n arc-systems logs -l app.kubernetes.io/component=runner-scale-set-listener --tail 50"
_AUTOSCALER = "kubectl -n kube-system logs -l app.kubernetes.io/name=aws-cluster-autoscaler --tail 50"
_PENDING = "kubectl -n arc-runners describe pods --field-selector status.phase=Pending"
_SETS = "kubectl -n arc-runners get autoscalingrunnersets"
_DRAIN = "`kubectl drain NODE --ignore-daemonsets --delete-emptydir-data`"
_REPLACE = f"{_DRAIN}, then end the instance: its node group starts another where jobs need it."

RUNBOOKS: Mapping[str, Runbook] = {
    "GpuLost": Runbook(
        "DCGM sees fewer GPUs of a model on a node than it did in the last six hours: one left the PCIe bus, or its "
        "driver gave it up. Jobs on it failed. A node of another type that took over the name of one that is gone can "
        "look the same for six hours.",
        (_EXPORTER, _GPUS_OF_NODES),
        _REPLACE,
    ),
    "GpuUncorrectableEccError": Runbook(
        "Memory gave back two wrong bits, which ECC sees and cannot mend. The program that read them was ended; on "
        "older GPUs every program of the GPU was.",
        (_EXPORTER,),
        f"A reset of the GPU retires the row. If the alert comes again for the same UUID: {_REPLACE}",
    ),
    "GpuRowRemapFailure": Runbook(
        "A faulty row of memory could not be replaced: the spare rows are used up, or replacing failed.",
        (_EXPORTER,),
        f"No reset mends it. {_REPLACE}",
    ),
    "GpuTooHot": Runbook(
        "A GPU is within 3 degrees Celsius of the temperature at which it slows itself down, by the limit that it "
        "names, its own margin on Hopper and later, or 93 degrees where it names neither. Jobs get slower, and "
        "measurements are worth nothing.",
        (_EXPORTER,),
        f"On a rented machine there is no fan to mend. If it stays for more than one job: {_REPLACE}",
    ),
    "GpuMetricsMissing": Runbook(
        "A node offers GPUs, and no GPU metric comes from it: the exporter is not there, not ready, or not scraped. "
        "The other alerts on this node's GPUs are blind until it is.",
        (_EXPORTER, "kubectl -n monitoring logs -l app.kubernetes.io/name=dcgm-exporter --tail 50"),
        "Delete the exporter's pod on the node. If its log cannot reach port 5555, the node monitoring agent's engine "
        "is not there: its pods are in kube-system. A metric that the exporter does not know ends it at the start.",
    ),
    "GpuXidReset": Runbook(
        "The GPU's last Xid is one that NVIDIA's catalogue answers with a reset. The alert stands until the node goes "
        "or DCGM starts anew.",
        (_EXPORTER,),
        f"Reset the GPU on a drained node: `./inv gpu.reset` there. On a fleet of spare nodes replacing is quicker: "
        f"{_REPLACE}",
    ),
    "GpuXidReboot": Runbook(
        "The GPU's last Xid is one that only a reboot ends, such as 79: the GPU fell off the bus.",
        (_GPUS_OF_NODES,),
        _REPLACE,
    ),
    "GpuXidReplace": Runbook(
        "The GPU's last Xid says that the hardware is broken.", (_EXPORTER,), f"{_REPLACE} Keep the UUID for AWS."
    ),
    "GpuXidDriver": Runbook(
        "The driver asks for a recovery action by Xid 154; which one, stands in its message and in `nvidia-smi -q`.",
        ("nvidia-smi -q -d PERFORMANCE",),
        "Do what the recovery action says: none, drain, reset or reboot. On a spare node: " + _REPLACE,
    ),
    "GpuXidJob": Runbook(
        "A program made an error that the GPU survived, such as an address that is not mapped (31) or an illegal "
        "instruction (13). The node is fine. The alert goes after half an hour.",
        (_EXPORTER,),
        "Look at the log of the job that ran then. The same Xid under many different jobs on one GPU is the GPU: "
        "replace the node.",
    ),
    "GpuXidUnknown": Runbook(
        "The GPU's last Xid is in no source that the catalogue was made of.",
        (_EXPORTER,),
        f"Ask NVIDIA's support; until then do not trust the GPU: {_REPLACE}",
    ),
    "GpuNotAllocatable": Runbook(
        "A node counts more GPUs than pods may have: the device plugin took some for unhealthy, most often after an "
        "Xid.",
        (_GPUS_OF_NODES, "kubectl -n kube-system logs -l app.kubernetes.io/name=nvidia-device-plugin --tail 50"),
        f"If its log names an Xid, do what that Xid asks for; if not, delete the plugin's pod. If it stays: {_REPLACE}",
    ),
    "GpuNodeWithoutGpus": Runbook(
        "A node has the taint of GPU nodes and has offered no GPU for a quarter of an hour. It is paid for, and no "
        "job can run there.",
        (_GPUS_OF_NODES, "kubectl -n kube-system get pods -o wide -l app.kubernetes.io/name=nvidia-device-plugin"),
        f"Look whether the plugin's pod runs on the node, and what its log says of the driver. If one node: {_REPLACE} "
        "If all: the AMI has no driver, or another one than the plugin's image can use.",
    ),
    "GpuMissing": Runbook(
        "A node has registered fewer GPUs than its type has, for a quarter of an hour: one did not come up with the "
        "driver, or is off the bus since the boot. A Prometheus of your own sees it only where its kube-state-metrics "
        "exports the nodes' labels `node.kubernetes.io/instance-type` and `paddock.dev/pool`.",
        (_GPUS_OF_NODES, "kubectl -n kube-system logs -l app.kubernetes.io/name=nvidia-device-plugin --tail 50"),
        _REPLACE,
    ),
    "NodeMetricsMissing": Runbook(
        "kube-state-metrics publishes nothing, or Prometheus does not read it. GpuNotAllocatable, GpuNodeWithoutGpus, "
        "GpuMissing, RunnerRestarting, GpuMetricsMissing, GpuPodsPending, GpuIdle and GpuNodesUnused cannot fire until "
        "it does.",
        ("kubectl get pods -A -l app.kubernetes.io/name=kube-state-metrics",),
        "A cluster without one gets it with `monitoring.prometheus`. If it runs, look at the targets of Prometheus: "
        "its network policy, or the labels by which a ServiceMonitor is chosen.",
    ),
    "GpuJobsWaiting": Runbook(
        "A scale set has had more jobs than runners for 20 minutes, though it may have more runners. Under a steady "
        "load of short jobs that alone is no fault: then QueueSlow is quiet.",
        (_PENDING, _AUTOSCALER),
        "The events of the pods name what no node has. `./inv doctor --stack STACK` names a quota of 0, or a type "
        "that is not offered.",
    ),
    "QueueSlow": Runbook(
        "Of the jobs of the last hour, of at least five, one in twenty waited more than 20 minutes between its "
        "assignment to a scale set and its runner. Jobs that still wait are not in this number.",
        (_PENDING, _AUTOSCALER),
        "If the fleet is at `nodes.max` or at `max` of its runners, it is too small for its jobs. If nodes do not "
        "come, a type has no capacity: add types to the pool, or `fallback: on-demand`. If nodes come and runners do "
        "not, the image is large: see the AMI's image cache.",
    ),
    "GpuPodsPending": Runbook(
        "Pods that ask for GPUs have waited for more than 20 minutes: for a node, for its GPUs, or for their image.",
        (_PENDING, _AUTOSCALER, _GPUS_OF_NODES),
        "The last event of a pod says which. [A job stays queued](runbooks.md#a-job-stays-queued) goes the whole way.",
    ),
    "ScaleSetFailing": Runbook(
        "ARC has given runners of a scale set up: the API server refuses their pod. They count against `max` until "
        "they are deleted. A pod that was made and then fails is RunnerRestarting.",
        ("kubectl -n arc-runners describe ephemeralrunners", _SETS),
        "The status of an EphemeralRunner has reason and message. After the cause is gone, delete the failed ones.",
    ),
    "RunnerRestarting": Runbook(
        "A runner's pod was made more than twice in half an hour. ARC deletes a pod that fails and makes it again "
        "under the same name, later each time, and the runner itself after five failures. The image cannot start, "
        "lacks the runner or needs another driver, or GitHub refused the registration.",
        ("kubectl -n arc-runners describe ephemeralrunners", _PENDING),
        "`./inv why` judges the failures. The cause is most often a new image: the runner's `image` in the stack file, "
        "then `pulumi up`.",
    ),
    "ListenerRestarting": Runbook(
        "A listener was started more than three times in a quarter of an hour. Each start asks GitHub for a session, "
        "and uses up the App's rate limit.",
        (_LISTENERS, _LISTENER_LOG),
        "401 or 403: the App's key or its permissions. 409: another cluster has a scale set of the same name. "
        "Otherwise the controller's log says why it makes the listener anew.",
    ),
    "ListenerAbsent": Runbook(
        "No metric of a scale set's listener has come for ten minutes: GitHub has nobody to give the set's jobs to. "
        "The listener is not there, or Prometheus does not reach it.",
        (_LISTENERS, _SETS),
        "`Outdated` means that GitHub refuses the runner's version: see RunnerVersionOld. If the listener runs, the "
        "scrape is what is broken. Else delete the AutoscalingListener: the controller makes it anew.",
    ),
    "RunnerVersionOld": Runbook(
        "GitHub gives jobs to a runner for about 30 days after the release of its successor. In nine days or less "
        "that time is over, counted from the successor, or from the day on which the releases were last looked up.",
        ("./inv plan",),
        "Set the newest version in `infra/versions.py`, build the image anew where it is your own "
        "(`./inv runner.build --pin STACK`), and run `pulumi up`.",
    ),
    "RunnerVersionRefused": Runbook(
        "The time of RunnerVersionOld is over. Scale sets become `Outdated`, lose their listener, and jobs wait.",
        (_SETS, "./inv plan"),
        "As for RunnerVersionOld, today.",
    ),
    "CapacityBlockEnding": Runbook(
        "The Capacity Block of a pool ends within two days, or has ended. EC2 ends the instances 30 minutes before "
        "the block's end, and jobs on them fail.",
        ("aws ec2 describe-capacity-reservations --capacity-reservation-ids ID",),
        "Buy the next block and set its `capacityBlock` and `ends` in the pool, or set the runners' `max` to 0.",
    ),
    "GpuIdle": Runbook(
        "Running pods have held GPUs of a node for an hour while none of the node's GPUs did anything. A warm runner "
        "does so by intent. Nodes in MIG mode are not seen: their GPUs have no utilisation of their own.",
        ("kubectl -n arc-runners get pods -o wide", "kubectl -n arc-runners get ephemeralrunners"),
        "A runner with a job: the job waits for something else, such as a download. A runner without one, and no "
        "`warm`: its registration hangs; delete the EphemeralRunner.",
    ),
    "GpuNodesUnused": Runbook(
        "For an hour more GPU nodes than the pools keep by `nodes.min` had no pod with a GPU.",
        (_AUTOSCALER, _GPUS_OF_NODES),
        "The autoscaler's log names the pod or the rule that holds a node. A node whose pods are all DaemonSets is "
        "removed after its idle time; if not, drain it.",
    ),
}


def markdown(name: str) -> str:
    """Return the text of an alert's runbook, for a page and for a terminal."""
    book = RUNBOOKS[name]
    commands = "\n".join(f"$ {command}" for command in book.check)
    return f"{book.meaning}\n\n```console\n{commands}\n```\n\n{book.fix}\n"

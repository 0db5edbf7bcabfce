"""Faults on the way of a job to a GPU, as changes of a world at work, with the link that each breaks.

PAINS says what covers each of the twenty things that ARC's users report most; tests check that it is there.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.support import chain_faults_arc, chain_faults_logs, chain_faults_node, chain_faults_pod
from tests.support.chain_fault import FAULTS, Fault

__all__ = ["FAULTS", "PAINS", "Fault", "chain_faults_arc", "chain_faults_logs", "chain_faults_node", "chain_faults_pod"]

PAINS: Mapping[str, tuple[str, ...]] = {
    "[self-hosted, gpu] is not matched (2445, 3330, 3327)": ("labels_of_no_scale_set", "CMP008"),
    "label edits are ignored (4424, 4425, 4579)": ("edited_label_is_not_applied", "edited_label_is_ignored_by_github"),
    "several sets, unknown routing (4004, 3351)": ("job_of_two_sets", "CON012"),
    "GitHub Enterprise Server breaks with 0.14 (4443)": ("enterprise_server_refuses_the_scale_set", "CMP009"),
    "failed runners eat maxRunners (3685, 4258, 4168, 3014)": (
        "failed_runners_take_every_place",
        "runner_has_failed_five_times",
        "older_arc_gave_the_runner_up",
    ),
    "the pod is deleted before its node is up (3468, 3516, 3450)": ("pod_is_made_anew_while_its_node_boots", "CMP008"),
    "jobs are queued for an hour without a log (3953, 3649)": (
        "controller_does_not_run",
        "listener_was_not_made_again",
        "runner_is_not_known_to_github",
        "session_is_dead",
    ),
    "the workflow's pod fails where it finds no room (hooks 173, 140; 3647, 3232)": (
        "job_pod_finds_the_node_full",
        "tests/bad_input/misspelt-container.yaml",
    ),
    "the copy loop of novolume is slow": (
        "tests/fleet/sizing/test_capacity.py::test_a_coordinator_has_the_cpu_to_copy_files_into_jobs",
    ),
    "the listener is evicted, crashes, falls silent (4331, 4469, 4656, 4356, 3204, 3351)": (
        "listener_was_evicted",
        "listener_hangs_on_a_node_that_is_gone",
        "listener_does_not_go",
        "listener_ends_again_and_again",
        "session_is_dead",
    ),
    "the set is outdated for ever, the listener's image old (4596, 4513)": (
        "scale_set_is_outdated",
        "listener_is_older_than_the_controller",
    ),
    "runner images are refused after 30 days (4242, 1984)": ("runner_is_outdated", "CMP010"),
    "the image has no runner (runner 3768)": ("image_has_no_runner",),
    "GPU with Docker-in-Docker (2553, 3547)": ("tests/bad_input/dind-on-shared-node.yaml", "PAD038"),
    "Docker-in-Docker is privileged (1288, 2110, 2919)": ("PAD028", "PAD032"),
    "selector and tolerations of workflow pods (1730)": (
        "job_pod_does_not_tolerate_the_taint",
        "job_pod_selects_what_no_pool_has",
    ),
    "no nvidia.com/gpu, no plugin, the wrong image (eks-ami 2342, 1817; device-plugin 344)": (
        "device_plugin_is_missing",
        "node_lacks_the_label_of_the_plugin",
        "machine_image_has_no_driver",
        "instance_never_joins",
    ),
    "driver versions (eks-ami 2417, 1697)": (
        "image_needs_a_newer_driver",
        "driver_was_updated_under_the_node",
        "job_needs_a_newer_driver",
        "job_meets_a_driver_that_was_changed",
    ),
    "Failed to initialize NVML: Unknown Error (nvidia-container-toolkit 48, 1227, 251)": ("job_loses_its_gpus",),
    "fractional GPUs count as none (eks-ami 2323)": ("autoscaler_sees_nodes_without_gpus",),
}
"""Pains of ARC's users in the order of their weight -> faults, near misses, plan rules and inputs that cover them."""

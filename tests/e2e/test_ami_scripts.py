"""The AMI's scripts, run for real in a container whose driver, packages, systemd and containerd are stand-ins."""

from __future__ import annotations

import json
import re

import pytest

from infra.gpu import access as gpu_access
from infra.images import ami_components
from infra.images.ami_components import AMI
from paddock.fleet import Fleet
from tests.support import ami_machine
from tests.support.ami_machine import Machine, as_image_builder, called
from tests.support.fleets import fleet_data, stack

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ami-scripts")]

REGISTRY = "123456789012.dkr.ecr.us-west-2.amazonaws.com"
RUNNER = f"{REGISTRY}/acme/runner-gpu@sha256:{'4' * 64}"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return ami_machine.build_machine(tmp_path_factory.mktemp("ami"))


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    pools = {
        "t4": {"instances": ["g4dn.xlarge"], "nodes": {"max": 1}},
        "a100": {"instances": ["p4d.24xlarge"], "nodes": {"max": 1}},
    }
    images = {"runner": RUNNER, "ami": {"enabled": True}}
    return stack(fleet_data(pools=pools, runners={}, images=images, monitoring={"enabled": True})).fleet


DNF = "dnf -y --setopt=cuda*.skip_if_unavailable=1 --setopt=nvidia*.skip_if_unavailable=1"
BUILT = [
    "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
    "dnf -q versionlock list",
    "dnf -q versionlock add kernel* *nvidia* nvlsm* containerd*",
    f"{DNF} upgrade --security --releasever=latest --exclude=kernel* --exclude=*nvidia* --exclude=nvlsm* "
    "--exclude=containerd* --exclude=cuda* --exclude=datacenter-gpu-manager*",
    gpu_access.NVIDIA_CTK,
    "systemctl enable nvidia-cdi-refresh.path nvidia-cdi-refresh.service",
    "systemctl enable nvidia-persistenced.service amazon-ssm-agent.service nvidia-fabricmanager.service",
    f"{DNF} install spal-release",
    f"{DNF} install nvtop",
    "dnf -y install --setopt=install_weak_deps=True datacenter-gpu-manager-4-cuda13-4.5.3",
    "systemctl disable nvidia-dcgm.service",
    "systemctl restart containerd.service",
    f"nerdctl login --username AWS --password-stdin https://{REGISTRY}",
    f"nerdctl --namespace k8s.io pull --quiet --unpack=false {RUNNER}",
    f"ctr --namespace k8s.io images mount --snapshotter soci {RUNNER} MOUNT",
    "ctr --namespace k8s.io images unmount --rm --snapshotter soci MOUNT",
    f"ctr --namespace k8s.io images label {RUNNER} io.cri-containerd.pinned=pinned",
    "systemctl stop containerd.service soci-snapshotter.service",
    "ctr --namespace k8s.io images list --quiet",
    "dnf clean all",
]
"""Commands that the build runs on the machine, in this order."""


def same_words(calls: tuple[str, ...]) -> list[str]:
    """The calls with their temporary folder under one name."""
    return [re.sub(r"/run/paddock-image\.\w+", "MOUNT", call) for call in calls]


def in_order(expected: list[str], calls: list[str]) -> bool:
    """Return whether every command of `expected` was called, in that order."""
    remaining = iter(calls)
    return all(any(call == command for call in remaining) for command in expected)


def test_an_image_passes_its_phases_and_rebuilding_changes_nothing(machine: Machine, fleet: Fleet) -> None:
    documents, values = ami_components.documents(fleet), {**ami_components.parameters(fleet), "recipe": "1.2.3"}
    build = as_image_builder(documents, "build", values)
    ran = machine.run(
        build,
        build,
        as_image_builder(documents, "validate", values),
        as_image_builder(documents, "test", values),
        before="""
            mkdir -p ~/.docker /var/lib/cloud/instances/i-1 /var/log/journal /var/lib/kubelet/pki /etc/ssh
            echo secret > ~/.docker/config.json; echo key > /etc/ssh/ssh_host_rsa_key; echo id > /etc/machine-id
            echo log > /var/log/cloud-init.log; echo key > /var/lib/kubelet/pki/kubelet.key
        """,
        trees=True,
        FAKE_FABRIC="580.159.03",
        FAKE_NVML_CUDA="13000",
    )

    assert ran.code == 0, ran.stderr
    first, second, validated, tested = map(same_words, ran.calls)
    assert in_order(BUILT, first), "\n".join(first)
    assert "aws ecr get-login-password --region us-west-2" in first, "at the same time as the login that reads it"
    assert sorted(first) == sorted(second)
    assert ran.trees[0] == ran.trees[1] == ran.trees[2]
    assert "systemctl is-enabled --quiet nvidia-fabricmanager.service" in validated
    assert not [call for call in (*first, *second) if "start nvidia-fabricmanager" in call]
    in_container = [call for call in tested if call.startswith("ctr --namespace k8s.io run")]
    assert [call.split(" paddock-gpu-test ")[1] for call in in_container] == [
        *["nvidia-smi -L", "/opt/paddock/cuda/cuda-smoke --all"] * 2, "sh -c ls /dev/nvidia[0-9]*",
    ]  # fmt: skip
    assert sum("--device nvidia.com/gpu=all" in call for call in in_container) == 2
    assert sum("src=/dev/null,dst=/var/run/nvidia-container-devices/all," in call for call in in_container) == 2
    assert sum("--env NVIDIA_VISIBLE_DEVICES=all" in call for call in in_container) == 1
    assert "cuda-smoke --all" in tested, "on the host as well"


def test_nothing_of_the_building_machine_stays(machine: Machine) -> None:
    ran = machine.run(
        "/opt/paddock/ami-scripts/cleanup.sh",
        before="""
            mkdir -p ~/.docker ~/.aws ~/.ssh /home/ec2-user/.ssh /var/lib/cloud/instances/i-1 /etc/ssh \
              /var/log/journal/1 /var/lib/kubelet/pki /run/eks/nodeadm /etc/modprobe.d /usr/src/nvidia-580.159.03 \
              /var/lib/dkms/nvidia/580.159.03 /var/lib/dkms-archive/nvidia
            echo KEPT > /var/lib/dkms-archive/nvidia/nvidia-580.159.03.dkms.tar.gz
            for file in ~/.docker/config.json ~/.aws/credentials ~/.ssh/authorized_keys /etc/machine-id \
              /home/ec2-user/.ssh/authorized_keys /etc/ssh/ssh_host_ed25519_key /var/log/cloud-init.log \
              /var/log/journal/1/system.journal /var/lib/kubelet/pki/kubelet.key /run/eks/nodeadm/config.json \
              /etc/modprobe.d/nvidia-disable-gsp.conf /usr/src/nvidia-580.159.03/dkms.conf \
              /var/lib/dkms/nvidia/580.159.03/nvidia.ko; do
              echo MARKED > "$file"
            done
        """,
        after="grep -rlE 'MARKED|KEPT' /root /home /etc /var /run /usr/src || true",
        trees=True,
    )
    assert ran.code == 0, ran.stderr
    assert ran.after[0].splitlines() == ["/var/lib/dkms-archive/nvidia/nvidia-580.159.03.dkms.tar.gz"]
    assert "kmod-util remove nvidia" in ran.calls[0], "dkms knows where else the module is"
    assert "f 644 /var/log/cloud-init.log" in ran.trees[0]


def facts(machine: Machine, *arguments: str, before: str = "", **environment: str) -> dict[str, str]:
    ran = machine.script("record.sh", *arguments, before=before, **environment)
    assert ran.code == 0, ran.stderr
    recorded: dict[str, str] = json.loads(ran.stderr[ran.stderr.index("{") :])
    return recorded


def test_recorded_facts_are_measured(machine: Machine) -> None:
    measured = facts(machine, "1.35.6-20260714", "1.2.3", FAKE_DRIVER="595.45.04", FAKE_NVML_CUDA="13020")
    built = measured.pop("built")
    assert measured == {
        "driver": "595.45.04",
        "cuda": "13.2",
        "kernel": "6.12.94-123.175.amzn2023.x86_64",
        "container_toolkit": "1.19.1",
        "kubernetes": "1.35",
        "kubelet": "1.35.6",
        "release": "1.35.6-20260714",
        "build": "1.2.3",
        "runner_image": None,
    }
    assert built.endswith("Z")


UNEXPECTED: list[tuple[tuple[str, ...], dict[str, str], str]] = [
    (
        ("driver.sh", "580.159.03"),
        {"FAKE_DRIVER": "570.211.01"},
        "the base image has driver 570.211.01, and 580.159.03 was asked for. It is not installed on top",
    ),
    (("driver.sh", "59"), {"FAKE_DRIVER": "595.45.04"}, "has driver 595.45.04, and 59 was asked for"),
    (("driver.sh", "580", "6.18.36"), {}, "runs kernel 6.12.94-123.175.amzn2023.x86_64, and the catalogue says"),
    (("driver.sh", "580", "6.12.9"), {}, "and the catalogue says 6.12.9 of its release"),
    (("container-toolkit.sh",), {"FAKE_WITHOUT": "cdi-unit", "FAKE_TOOLKIT": "1.17.8"}, "container toolkit 1.17.8"),
    (("container-toolkit.sh",), {"FAKE_MODE": "legacy"}, 'is in mode "legacy", which does not use CDI'),
    (("services.sh", "fabric-manager"), {}, "no fabric manager in the base image"),
    (("services.sh", "fabric-manager"), {"FAKE_FABRIC": "575.1"}, "fabric manager 575.1 and driver 580.159.03"),
    (("tools.sh",), {"FAKE_WITHOUT": "spal"}, "no spal-release, and dnf says above whether for want of a network"),
    (("record.sh", "1.35.6-20260714", "1.2.3", RUNNER), {}, f"{RUNNER} is not in this image"),
    (("runner-image.sh", f"{REGISTRY}/acme/runner:latest"), {}, "names no digest"),
    (
        ("runner-image.sh", RUNNER, "soci overlayfs"),
        {"FAKE_LAYERS": "9000", "FAKE_FREE": "31000"},
        f"31000 MiB are free, and {RUNNER} needs 47048 to be unpacked: write a larger images.ami.disk",
    ),
    (
        ("gpu-test.sh", RUNNER),
        {"FAKE_WITHOUT": "cdi-device"},
        "no CDI device nvidia.com/gpu=all, only: nvidia.com/gpu=0",
    ),
    (
        ("gpu-test.sh", RUNNER),
        {"FAKE_WITHOUT": "gpu-in-container"},
        "no GPU in a container (device, soci): nvidia-smi -L failed",
    ),
    (
        ("gpu-test.sh", RUNNER),
        {"FAKE_WITHOUT": "strict-setting"},
        "NVIDIA_VISIBLE_DEVICES=all gave an unprivileged container /dev/nvidia0",
    ),
    (("gpu-test.sh",), {"FAKE_WITHOUT": "kmod-load"}, "nvidia-kmod-load.service failed"),
    (("engine.sh", "restart"), {}, "engine.sh start|stop"),
    (("record.sh", "1.35.6-20260714"), {}, "record.sh RELEASE BUILD [RUNNER_IMAGE]"),
]
COMPONENTS = [
    ("driver=595.45.04", "driver 595.45.04 was asked for, and the machine has 580.159.03"),
    ("driver=58", "driver 58 was asked for"),
    ("cuda=12.9", "cuda 12.9 was asked for, and the machine has 13.0"),
    ("kernel=6.18.36", "kernel 6.18.36 was asked for"),
    ("container_toolkit=1.18.2", "container_toolkit 1.18.2 was asked for"),
    ("kubernetes=1.36", "kubernetes 1.36 was asked for"),
    ("release=1.35.4-20260505", "release 1.35.4-20260505 was asked for, and the machine has kubelet 1.35.6"),
    ("build=1.2.4", "build 1.2.4 was asked for, and the machine has 1.2.3"),
    (f"runner_image={RUNNER}", f"runner_image {RUNNER} was asked for, and the machine has None"),
]
RECORD = called("record.sh", "1.35.6-20260714", "1.2.3")
CTK = "nvidia-ctk config --in-place --set accept-nvidia-visible-devices-envvar-when-unprivileged="
UNSET = "accept-nvidia-visible-devices"
REFUSED = [
    ("true", (), f"{UNSET}-envvar-when-unprivileged is not false"),
    (f"{CTK}true", (), f"{UNSET}-envvar-when-unprivileged is not false"),
    (f"rm -r /etc/nvidia-container-runtime; {CTK}false", (), f"{UNSET}-as-volume-mounts is not true"),
    (gpu_access.NVIDIA_CTK, (), "nvidia-persistenced.service is not enabled"),
    (called("services.sh"), (), "nvidia-cdi-refresh.path is not enabled"),
    ("systemctl enable nvidia-cdi-refresh.path", ("fabric-manager",), "nvidia-fabricmanager.service is not enabled"),
]
"""What is done to the machine beforehand, one after another, and what the test of the image then says."""


def test_an_unexpected_machine_stops_the_build(machine: Machine) -> None:
    outcomes = machine.outcomes(*(called(*words, **environment) for words, environment, _ in UNEXPECTED))
    for (words, _, message), (code, printed) in zip(UNEXPECTED, outcomes, strict=True):
        assert code != 0, words
        assert message in printed, words


def test_an_image_with_unexpected_contents_fails_its_test(machine: Machine) -> None:
    enabled = f"{RECORD}; {called('services.sh')}; systemctl enable nvidia-cdi-refresh.path"
    outcomes = machine.outcomes(*(called("verify.sh", component) for component, _ in COMPONENTS), before=enabled)
    for (component, message), (code, printed) in zip(COMPONENTS, outcomes, strict=True):
        assert code != 0, component
        assert message in printed, component


def test_the_image_fails_its_test_until_all_is_as_it_must_be(machine: Machine) -> None:
    """A variable would show GPUs to all, and then one service after another would not start."""
    scripts = (f"{change}\n{called('verify.sh', *words)}" for change, words, _ in REFUSED)
    for (change, _, message), (code, printed) in zip(REFUSED, machine.outcomes(*scripts, before=RECORD), strict=True):
        assert code != 0, change
        assert f"paddock: {message}" in printed, change


def test_a_machine_that_differs_from_the_record_fails_the_test(machine: Machine) -> None:
    wrote = "FAKE_DRIVER=580.126.09 /opt/paddock/ami-scripts/record.sh 1.35.6-20260714 1.2.3"
    ran = machine.script("verify.sh", before=wrote)
    assert ran.code != 0
    assert "/etc/paddock/ami.json says driver 580.126.09, and the machine has 580.159.03" in ran.stderr


def test_a_branch_and_a_kernel_without_its_build_number_are_enough(machine: Machine) -> None:
    ran = machine.script("driver.sh", "580", "6.12.94")
    assert ran.code == 0, ran.stderr


def test_another_dcgm_of_the_same_major_is_better_than_no_image(machine: Machine) -> None:
    ran = machine.script("tools.sh", "4.5.3", FAKE_NVML_CUDA="13000", FAKE_WITHOUT="dcgm")
    assert ran.code == 0, ran.stderr
    installed = [call.split()[-1] for call in ran.calls[0] if "gpu-manager" in call]
    assert installed == ["datacenter-gpu-manager-4-cuda13-4.5.3", "datacenter-gpu-manager-4-cuda13"]


def test_without_the_plugin_the_driver_is_held_in_dnfs_settings_once(machine: Machine) -> None:
    held = called("driver.sh")
    ran = machine.run(held, held, after="cat /etc/dnf/dnf.conf", FAKE_WITHOUT="versionlock")
    assert ran.code == 0, ran.stderr
    assert ran.after[1].split() == ["excludepkgs=kernel*,*nvidia*,nvlsm*,containerd*"]


def test_a_user_other_than_root_changes_nothing(machine: Machine) -> None:
    names = sorted({path.name for path in (AMI / "scripts").iterdir()} - {"common.sh", "facts.sh", "verify.sh"})
    scripts = [called(name) for name in names]
    all_of_them = (f"setpriv --reuid=65534 --clear-groups {script} start || true" for script in scripts)
    ran = machine.run("true", "\n".join(all_of_them), trees=True)
    refusals = [
        f"paddock: {script} changes the machine, for which it must be root: sudo {script}" for script in scripts
    ]
    assert ran.stderr.splitlines()[-len(scripts) :] == refusals
    assert ran.trees[0] == ran.trees[1]


def test_no_login_is_seen_or_kept(machine: Machine) -> None:
    ran = machine.script(
        "runner-image.sh",
        RUNNER,
        after="cat /tmp/stdin-of-login; grep -rl the-password /root /run /etc /var || true",
    )
    assert ran.code == 0, ran.stderr
    assert ran.after[0].split() == ["the-password"], "given to the login, and found nowhere"
    assert not [call for call in ran.calls[0] if "the-password" in call]
    assert "the-password" not in ran.stderr


def test_a_public_image_is_pulled_without_a_login(machine: Machine) -> None:
    ran = machine.script(
        "runner-image.sh", f"ghcr.io/acme/runner@sha256:{'4' * 64}", "soci overlayfs", FAKE_LAYERS="5000"
    )
    assert ran.code == 0, ran.stderr
    assert not [call for call in ran.calls[0] if "login" in call]
    assert [call.split()[6] for call in ran.calls[0] if " images mount " in call] == ["soci", "overlayfs"]


def test_a_second_attempt_needs_the_room_that_is_left_to_fill(machine: Machine) -> None:
    pull = called("runner-image.sh", RUNNER, "soci overlayfs")
    message = f"31000 MiB are free, and {RUNNER} needs 47048 to be unpacked"
    ran = machine.run(f"{pull} || {pull}", FAKE_LAYERS="9000", FAKE_FREE="31000")
    assert ran.code != 0
    assert ran.stderr.count(message) == 2

    ran = machine.run(pull, FAKE_LAYERS="9000", FAKE_FREE="31000", FAKE_UNPACKED="20000")
    assert ran.code == 0, ran.stderr


def test_missing_proofs_are_reported(machine: Machine) -> None:
    nothing = machine.script("gpu-test.sh")
    assert nothing.code == 0
    assert "NOT PROVED: CUDA computes" in nothing.stderr
    assert "NOT PROVED: a container sees the GPU" in nothing.stderr

    no_smoke = machine.script("gpu-test.sh", RUNNER, FAKE_WITHOUT="smoke")
    assert no_smoke.code == 0
    assert "NOT PROVED: CUDA computes" in no_smoke.stderr
    assert "NOT PROVED: a container" not in no_smoke.stderr
    assert [call for call in no_smoke.calls[0] if "nvidia-smi -L" in call and " run " in call]

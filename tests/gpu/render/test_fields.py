"""The older connector's fields: what each becomes, and what is refused with what to use instead."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.gpu.errors import GpuError, GpuInputError, NoGpu
from paddock.gpu.leases.request import Request
from paddock.gpu.model import ContainerRuntime, Driver, Gpu, Inventory, Machine, Memory
from paddock.gpu.render import TARGETS, options, render
from paddock.gpu.render.fields import Connector, Docker, Kubernetes, Proxmox, names
from paddock.gpu.render.slurm.node import installed
from tests.support.boxes import box, divided, gpu, h100s
from tests.support.gpu_machines import NO_GPU, host, instincts

TWO = box([gpu(0, "t4", minor=0), gpu(1, "a10g", minor=1)])
APPLE = Inventory(
    "2026-11-20T10:00:00Z",
    Machine("mac", "macos", "arm64"),
    "apple",
    (Gpu(0, "apple-1", "Apple M4", "apple", memory=Memory(24576, 0, 24576), unified_memory=True),),
)


def words(selection: Any, inventory: Inventory = TWO, **more: Any) -> list[str]:
    return shlex.split(render("docker", inventory, selection, **more).text("docker-run.args"))


def pod(selection: Any, inventory: Inventory = TWO, **more: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(render("kubernetes", inventory, selection, **more).text("pod.yaml"))
    return document["spec"]


def limits(selection: Any, inventory: Inventory = TWO, **more: Any) -> dict[str, int]:
    resources: dict[str, int] = pod(selection, inventory, **more)["containers"][0]["resources"]["limits"]
    return resources


def refusal(target: str, selection: Any, inventory: Inventory = TWO, **more: Any) -> str:
    with pytest.raises(GpuError) as caught:
        render(target, inventory, selection, **more)
    return str(caught.value)


def test_no_field_of_the_older_connector_is_unknown() -> None:
    assert {kind.__name__: names(kind) for kind in (Docker, Kubernetes, Proxmox, Connector)} == {
        "Docker": ("Enabled", "Runtime", "GPUIDs", "All", "Capabilities", "Memory"),
        "Kubernetes": ("Enabled", "ResourceName", "Limit", "Request", "NodeSelector", "Tolerations", "RuntimeClass"),
        "Proxmox": ("Enabled", "PCIDevices", "GPUIDs", "VFIO", "Primary", "ROMBAR", "X_VGA"),
        "Connector": ("NvidiaSMIPath", "DockerRuntime", "CUDAVersion", "EnableMonitoring", "MaxGPUsPerTask"),
    }


@pytest.mark.parametrize(("target", "fields", "expected"), [
    ("docker", {"Enabeld": True}, "did you mean Enabled?"),
    ("docker", {"All": True, "GPUIds": [0]}, "did you mean GPUIDs?"),
    ("docker", {"All": "yes"}, "All is 'yes'\n    expected: true or false"),
    ("docker", {"GPUIDs": "0,1"}, "GPUIDs is '0,1'\n    expected: a list"),
    ("docker", {"GPUIDs": [0, "1"]}, "GPUIDs[1] is '1'\n    expected: a whole number"),
    ("docker", {"GPUIDs": [0, 0]}, "GPUIDs has 0 twice"),
    ("docker", {"GPUIDs": [7]}, "GPUIDs has 7\n    expected: of 0, 1"),
    ("docker", {"All": True, "GPUIDs": [0]}, "GPUIDs and All are both given"),
    ("docker", {"Capabilities": ["compute", "utilty"]}, "did you mean utility?"),
    ("docker", {"Runtime": "nvidia; rm -rf /"}, "a name, such as nvidia or runc"),
    ("docker", {"Memory": "lots"}, "leave it out: Docker has no limit of GPU memory"),
    ("kubernetes", {"Limit": 2, "Request": 1}, "Request is 1 and Limit is 2\n    expected: both the same"),
    ("kubernetes", {"Limit": -1}, "Limit is -1\n    expected: a whole number"),
    ("kubernetes", {"Limit": 1, "ResourceName": "amd.com/gpu"}, "one of nvidia.com, whose GPUs these are"),
    ("kubernetes", {"Limit": 1, "ResourceName": "nvidia.com/mig-1g.10gb"}, "nvidia.com/gpu, as these GPUs are"),
    ("kubernetes", {"Limit": 1, "ResourceName": "nvidia.com/gpu.shared"}, "a share of memory in the request"),
    ("kubernetes", {"Limit": 1, "NodeSelector": {"a b": "c"}}, "a label's name"),
    ("kubernetes", {"Limit": 1, "NodeSelector": {"a": "not a value"}}, "a label's value"),
    ("kubernetes", {"Limit": 1, "RuntimeClass": "NVIDIA!"}, "a name, such as nvidia"),
    ("kubernetes", {"Limit": 1, "Tolerations": [{"Key": "a", "Effekt": "NoSchedule"}]}, "did you mean effect?"),
    ("kubernetes", {"Limit": 1, "Tolerations": [{"Key": "a", "Operator": "In"}]}, "Exists or Equal"),
    ("kubernetes", {"Limit": 1, "Tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "has a value"),
    ("proxmox", {"PCIDevices": ["1:0"]}, "'1:0' is not a PCI address"),
    ("proxmox", {"GPUIDs": [0], "VFIO": False}, "a container (LXC) uses the host's driver"),
    ("proxmox", {"GPUIDs": [0], "X_VGA": True}, "is not a display"),
    ("slurm", {"All": True}, "a request for GPUs has no 'All'"),
])  # fmt: skip
def test_what_is_wrong_with_a_field_is_said(target: str, fields: dict[str, Any], expected: str, tmp_path: Path) -> None:
    more = {"root": host(tmp_path, TWO.gpus)} if target == "proxmox" else {}
    with pytest.raises(GpuInputError) as caught:
        render(target, TWO, fields, **more)
    assert expected in str(caught.value)
    assert caught.value.exit_code == 2


# Docker.


def test_indexes_become_uuids_and_it_is_said_that_they_are_indexes() -> None:
    rendered = render("docker", TWO, {"Enabled": True, "GPUIDs": [1]})
    assert shlex.split(rendered.text("docker-run.args"))[:2] == ["--gpus", '"device=GPU-00000001-aaaa"']
    assert rendered.notes == ("GPUIDs are indexes, which change with cards and drivers; here 1 is GPU-00000001-aaaa.",)


def test_a_lost_divided_or_hidden_gpu_is_refused_by_index() -> None:
    lost = box([gpu(0), gpu(1, state="lost", reason="GPU is lost"), divided(2)])
    assert "GPU 1 cannot be given: it is lost (GPU is lost)" in refusal("docker", {"GPUIDs": [1]}, lost)
    assert "GPU 2 is divided by MIG" in refusal("docker", {"GPUIDs": [2]}, lost)
    hidden = refusal("docker", {"GPUIDs": [1]}, TWO, environ={"CUDA_VISIBLE_DEVICES": "0"})
    assert "GPU 1 is hidden" in hidden
    assert "CUDA_VISIBLE_DEVICES=0 leaves 1 GPU" in hidden


def test_all_is_all_only_where_nothing_is_left_out() -> None:
    assert words({"All": True})[:2] == ["--gpus", "all"]
    narrowed = render("docker", TWO, {"All": True}, environ={"NVIDIA_VISIBLE_DEVICES": "0"})
    assert '"device=GPU-00000000-aaaa"' in shlex.split(narrowed.text("docker-run.args"))
    assert narrowed.notes == ("NVIDIA_VISIBLE_DEVICES=0 leaves 1 GPU.",)


def test_one_gpu_is_given_where_no_field_says_which() -> None:
    assert words({"Enabled": True}) == words(Request())
    assert words({"Enabled": True}, request=Request(exclude=("t4",)))[1] == '"device=GPU-00000001-aaaa"'
    assert "both the fields and the request" in refusal("docker", {"All": True}, request=Request())


def test_a_disabled_container_sees_no_gpu_under_the_nvidia_runtime() -> None:
    assert words({"Enabled": False, "All": True}) == ["--env", "NVIDIA_VISIBLE_DEVICES=void"]


@pytest.mark.parametrize(("selection", "environ", "connector"), [
    ({"All": True, "Runtime": "nvidia", "Capabilities": ["compute", "utility"]}, {}, {}),
    ({"All": True, "Capabilities": "compute,utility"}, {"DOCKER_RUNTIME": "nvidia"}, {}),
    ({"All": True, "Capabilities": ["compute"]}, {}, {"DockerRuntime": "nvidia", "EnableMonitoring": True}),
    ({"All": True}, {"DOCKER_RUNTIME": "nvidia", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}, {}),
])  # fmt: skip
def test_the_nvidia_runtime_uses_variables_instead_of_the_gpus_flag(
    selection: dict[str, Any], environ: dict[str, str], connector: dict[str, Any]
) -> None:
    arguments = words(selection, environ=environ, connector=connector)
    assert arguments[0] == "--runtime=nvidia"
    assert "--gpus" not in arguments
    assert {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} <= set(arguments)


def test_a_runtime_that_the_engine_does_not_have_is_warned_of() -> None:
    machine = replace(TWO, runtime=ContainerRuntime(docker="28.2.2", runtimes=("runc",)))
    (warning,) = render("docker", machine, {"All": True, "Runtime": "nvidia"}).warnings
    assert "`nvidia-ctk runtime configure --runtime=docker`" in warning


@pytest.mark.parametrize("memory", ["8G", "8GiB", "8192m", "8388608K", "8589934592"])
def test_a_memory_limit_is_refused_with_each_way_to_have_one(memory: str) -> None:
    for target in ("docker", "docker-sdk", "compose", "cdi"):
        message = refusal(target, {"Memory": memory}, h100s(1))
        assert "it would be ignored" in message
        assert "a MIG part, enforced by the GPU: 1g.10gb" in message
        assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M" in message
        assert "torch.cuda.set_per_process_memory_fraction(0.10)" in message
    assert "MIG" not in refusal("docker", {"Memory": memory}, TWO), "a T4 cannot be divided"


def test_in_wsl_a_container_is_given_all_or_refused() -> None:
    machine = replace(TWO, machine=replace(TWO.machine, wsl=True))
    assert words(None, machine)[:2] == ["--gpus", "all"]
    assert render("cdi", machine).text("devices.txt") == "nvidia.com/gpu=all\n"
    assert "WSL gives a container every GPU or none" in refusal("docker", {"GPUIDs": [0]}, machine)


def service(selection: Any, **more: Any) -> dict[str, Any]:
    (file,) = render("compose", TWO, selection, **more).files
    document: dict[str, Any] = yaml.safe_load(file.text)["services"]["gpu"]
    return document


def test_compose_says_all_and_capabilities_in_both_forms() -> None:
    every = {"driver": "nvidia", "count": "all", "capabilities": ["gpu", "compute", "video"]}
    selection = {"All": True, "Capabilities": ["compute", "video"]}
    assert service(selection)["deploy"] == {"resources": {"reservations": {"devices": [every]}}}
    assert service(selection, form="gpus")["gpus"] == [every]
    assert service({"All": True}, form="gpus")["gpus"] == "all"
    legacy = service(selection | {"Runtime": "nvidia"})
    assert legacy["runtime"] == "nvidia"
    assert legacy["environment"]["NVIDIA_DRIVER_CAPABILITIES"] == "compute,video"
    assert not {"deploy", "gpus"} & set(legacy)
    assert "deploy or gpus" in refusal("compose", selection, form="short")


def test_a_compose_file_without_an_image_lies_over_another() -> None:
    rendered = render("compose", TWO, {"All": True}, image="", service="train")
    assert [note.path for note in rendered.files] == ["compose.gpu.yaml"]
    assert "image" not in rendered.files[0].text
    assert any("-f compose.yaml -f compose.gpu.yaml" in note for note in rendered.notes)


def test_an_amd_gpu_is_never_given_by_nvidia_s_runtime(tmp_path: Path) -> None:
    machine = instincts(tmp_path)
    assert "gives no AMD GPU" in refusal("docker", {"All": True, "Runtime": "nvidia"}, machine)
    assert not any(
        "runtime" in warning for warning in words({"All": True}, machine, environ={"DOCKER_RUNTIME": "nvidia"})
    )
    unknown = replace(machine, gpus=tuple(replace(card, device_group=None) for card in machine.gpus))
    assert "the group of /dev/kfd is not known" in refusal("docker", {"All": True}, unknown)


# Kubernetes.


def test_limit_and_request_are_one_number_and_either_will_do() -> None:
    for selection in ({"Limit": 2, "Request": 2}, {"Limit": 2, "Request": 0}, {"Request": 2}):
        assert limits(selection) == {"nvidia.com/gpu": 2}
    assert "3 GPUs requested, and 2 available" in refusal("kubernetes", {"Limit": 3})


def test_the_field_overrides_the_environment_s_resource_name() -> None:
    environ = {"KUBE_GPU_RESOURCE": "nvidia.com/a10g"}
    assert limits({"Limit": 1}, environ=environ) == {"nvidia.com/a10g": 1}
    assert limits({"Limit": 1, "ResourceName": "nvidia.com/gpu"}, environ=environ) == {"nvidia.com/gpu": 1}
    assert limits({"Limit": 1}, environ={"KUBE_GPU_RESOURCE": "amd.com/gpu"}) == {"nvidia.com/gpu": 1}


def test_a_pod_has_every_field() -> None:
    selection = {
        "Enabled": True, "Limit": 1, "RuntimeClass": "nvidia", "NodeSelector": {"zone": "a"},
        "Tolerations": [{"Key": "team", "Operator": "Equal", "Value": "ml", "Effect": "NoExecute",
                         "TolerationSeconds": 60}],
    }  # fmt: skip
    document = pod(selection, h100s(2))
    assert document["runtimeClassName"] == "nvidia"
    assert document["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "zone": "a"}
    assert document["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "operator": "Equal", "value": "ml", "effect": "NoExecute", "tolerationSeconds": 60},
    ]


def test_the_selector_that_no_node_has_is_kept_and_warned_of() -> None:
    rendered = render("kubernetes", h100s(1), {"Limit": 1, "NodeSelector": {"accelerator": "nvidia-tesla-gpu"}})
    assert "accelerator: nvidia-tesla-gpu" in rendered.text("pod.yaml")
    assert any(
        "nothing sets the label" in warning and "nvidia.com/gpu.present" in warning for warning in rendered.warnings
    )


def test_a_share_becomes_replicas_of_the_device_plugin() -> None:
    for sharing, key in (("time-slicing", "timeSlicing"), ("mps", "mps")):
        rendered = render("kubernetes", h100s(1), Request(share=0.3), sharing=sharing)
        config = yaml.safe_load(yaml.safe_load(rendered.text("device-plugin.yaml"))["data"]["default"])
        assert config["sharing"][key]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 3}]
        assert "HBM3-SHARED" in rendered.text("pod.yaml")
    fields = {"Limit": 1, "ResourceName": "nvidia.com/gpu.shared"}
    rendered = render("kubernetes", h100s(1), fields, request=Request(share=0.3))
    assert "nvidia.com/gpu.shared: 1" in rendered.text("pod.yaml")
    assert "renameByDefault: true" in rendered.text("device-plugin.yaml")
    assert "SHARED" not in rendered.text("pod.yaml")
    assert "leaves nothing to another pod" in refusal("kubernetes", Request(share=0.6), h100s(1))
    assert "two shares may be of the same GPU" in refusal("kubernetes", Request(count=2, share=0.3), h100s(2))


def test_a_mig_part_has_the_resource_name_of_the_strategy() -> None:
    machine, part = box([divided(0)]), Request(mig="1g.10gb")
    assert limits(part, machine) == {"nvidia.com/mig-1g.10gb": 1}
    assert limits(part, machine, mig="single") == {"nvidia.com/gpu": 1}
    assert pod(part, machine, mig="single")["nodeSelector"] == {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"
    }
    media = box([divided(0, 1, "1g.10gb+me")])
    assert limits(Request(mig="1g.10gb+me"), media) == {"nvidia.com/mig-1g.10gb.me": 1}


# What holds for every target.


def test_one_task_is_given_no_more_gpus_than_the_limit() -> None:
    many = box([gpu(index, minor=index) for index in range(12)])
    assert "12 GPUs are more than one task may have\n    expected: at most 8" in refusal("docker", {"All": True}, many)
    assert "set MaxGPUsPerTask" in refusal("docker", {"All": True}, TWO, connector={"MaxGPUsPerTask": 1})
    assert words({"All": True}, many, environ={"PADDOCK_MAX_GPUS_PER_TASK": "12"})
    assert "gpu:h100:12" in render("slurm", many).text("slurm-gpu.conf"), "a node is no task"


def test_an_impossible_cuda_is_refused_and_a_limited_one_warned() -> None:
    machine = replace(TWO, driver=Driver("525.85.12", "12.0"))
    volta = box([replace(gpu(0), name="Tesla V100-SXM2-16GB", pci_device_id="10de:1db1")])
    volta = replace(volta, driver=Driver("580.95.05", "13.0"))
    assert "CUDA 13.0 cannot run here" in refusal("docker", {"GPUIDs": [0]}, volta, connector={"CUDAVersion": "13.0"})
    rendered = render("docker", machine, {"GPUIDs": [0]}, connector={"CUDAVersion": "12.8"})
    assert any("CUDA 12.8" in warning for warning in rendered.warnings)
    assert not render("docker", machine, {"GPUIDs": [0]}, connector={"CUDAVersion": "12.0"}).warnings
    assert "'new' is not a CUDA version" in refusal(
        "docker", {"GPUIDs": [0]}, machine, connector={"CUDAVersion": "new"}
    )


def test_the_path_of_nvidia_smi_is_taken_and_not_needed() -> None:
    (note,) = render("docker", TWO, {"All": True}, connector={"NvidiaSMIPath": "/opt/nvidia-smi"}).notes
    assert "NvidiaSMIPath is not needed" in note
    assert "did you mean NvidiaSMIPath?" in refusal("docker", {"All": True}, connector={"NvidiaSMIpth": "x"})


def test_an_apple_gpu_goes_into_no_container() -> None:
    for target in TARGETS:
        if target == "environment":
            assert render(target, APPLE).notes == ("Metal has one GPU, and no variable that hides it.",)
        else:
            assert "cannot be given an Apple GPU" in refusal(target, None, APPLE)


def test_a_machine_without_gpus_has_a_configuration_unless_one_is_required() -> None:
    for target in set(TARGETS) - {"cdi", "proxmox"}:
        assert render(target, NO_GPU).notes[0] == NO_GPU.reason
        with pytest.raises(NoGpu, match="no GPU: none on its bus"):
            render(target, NO_GPU, Request())


def test_a_node_gets_all_gpus_even_if_one_is_busy() -> None:
    busy = box([gpu(0, minor=0, processes=(gpu(0).processes or ())), gpu(1, minor=1, used=70_000)])
    assert "gpu:h100:2" in render("slurm", busy).text("slurm-gpu.conf")


# Slurm's own choices.


@pytest.mark.parametrize(("machine", "options", "line"), [
    (h100s(2), {"plugins": "gpu_nvml,gpu_generic"}, "AutoDetect=nvml"),
    (h100s(2), {"plugins": "gpu_nvidia", "version": "24.11.3"}, "AutoDetect=nvidia"),
    (h100s(2), {"plugins": "gpu_nvidia", "version": "24.05.1"}, None),
    (h100s(2), {"plugins": "gpu_generic", "version": "25.05.0"}, None),
    (h100s(2), {"plugins": "gpu_rsmi"}, None),
    (box([divided(0)]), {"plugins": "gpu_nvml"}, "AutoDetect=nvml"),
    (box([gpu(0), gpu(1, state="lost")]), {"plugins": "gpu_nvml"}, None),
])  # fmt: skip
def test_slurm_detects_only_what_it_can_and_only_the_whole(
    machine: Inventory, options: dict[str, str], line: str | None
) -> None:
    numbered = replace(machine, gpus=tuple(replace(line, minor=line.index) for line in machine.gpus))
    text = render("slurm", numbered, **options).text("gres.conf")
    assert (line in text) if line else ("AutoDetect" not in text and "File=/dev/nvidia" in text)
    assert "divided" not in text


def test_in_wsl_slurm_lists_one_gpu_and_detects_several() -> None:
    machine = replace(TWO, machine=replace(TWO.machine, wsl=True))
    assert "File=/dev/dxg " in render("slurm", replace(machine, gpus=machine.gpus[:1])).text("gres.conf")
    assert "AutoDetect=nvml" in render("slurm", machine, plugins="gpu_nvml").text("gres.conf")
    assert "one device file for all GPUs" in refusal("slurm", None, machine)


def test_slurm_reports_its_version_plugins_and_hardware(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu/slurm-wlm"
    folder.mkdir(parents=True)
    for name in ("gpu_generic.so", "gpu_rsmi.so", "gres_gpu.so"):
        (folder / name).touch()
    line = "NodeName=vm CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=24105"
    outputs = {"-V": "slurm-wlm 22.05.8\n", "-C": f"{line}\nUpTime=0-04:25:06\n"}
    options = installed(tmp_path, lambda command: outputs[command[1]])
    assert options == {"version": "22.05.8", "plugins": "gpu_generic,gpu_rsmi", "hardware": line}
    text = render("slurm", TWO, **options).text("slurm-gpu.conf")
    assert "NodeName=vm CPUs=2 Boards=1" in text
    assert "RealMemory=22899 " in text, "less than slurmd finds, or it refuses the node"
    assert installed(tmp_path, lambda _: None) == {}


def test_slurm_needs_nvml_for_mig_parts() -> None:
    message = refusal("slurm", None, box([divided(0)]), plugins="gpu_nvidia", version="25.05.0")
    assert "a Slurm with gpu_nvml.so" in message


def test_slurm_types_have_distinct_names() -> None:
    models = {
        "NVIDIA A10": "a10", "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb", "Tesla T4": "t4",
        "NVIDIA GeForce RTX 3090": "rtx_3090", "NVIDIA H100 80GB HBM3": "h100_80gb", "NVIDIA H100 NVL": "h100_nvl",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx_pro_6000",
    }  # fmt: skip
    machine = box([replace(gpu(index, minor=index), name=name) for index, name in enumerate(models)])
    gres = render("slurm", machine, plugins="gpu_nvml")
    assert [
        entry.split(":")[1] for entry in gres.text("slurm-gpu.conf").split("Gres=")[1].split()[0].split(",")
    ] == list(models.values())
    assert "AutoDetect" not in gres.text("gres.conf"), "a10 is a piece of nvidia_a100 too"


def test_a_share_and_shards_are_slurm_s_sharing() -> None:
    machine = box([gpu(0, minor=0), gpu(1, minor=1)])
    for rendered in (render("slurm", machine, shards=4), render("slurm", machine, Request(count=2, share=0.25))):
        assert "Gres=gpu:h100:2,shard:8" in rendered.text("slurm-gpu.conf")
        assert "GresTypes=gpu,shard" in rendered.text("slurm-gpu.conf")
        assert "Name=shard Count=8" in rendered.text("gres.conf")
    assert "one shard is the whole GPU" in refusal("slurm", None, machine, shards=1)


def test_some_of_a_machine_s_gpus_need_device_cgroups() -> None:
    """A job on /dev/nvidia[2-3] is told CUDA_VISIBLE_DEVICES=0,1 by the real Slurm."""
    machine, some = h100s(4), Request(count=2, uuids=("GPU-00000002", "GPU-00000003"))
    machine = replace(machine, gpus=tuple(replace(gpu, minor=gpu.index) for gpu in machine.gpus))
    assert any("ConstrainDevices=yes" in warning for warning in render("slurm", machine, some).warnings)
    whole = render("slurm", machine, some, whole=True)
    assert "ConstrainDevices=yes" in whole.text("cgroup.conf")
    assert "TaskPlugin=task/cgroup" in whole.text("slurm.conf")
    contained = replace(machine, machine=replace(machine.machine, container=True))
    assert "give the container these GPUs alone" in refusal("slurm", some, contained, whole=True)
    assert not any("ConstrainDevices" in warning for warning in render("slurm", machine, Request(count=2)).warnings)
    turned = replace(machine, gpus=tuple(replace(gpu, minor=3 - gpu.index) for gpu in machine.gpus))
    assert any("ConstrainDevices=yes" in warning for warning in render("slurm", turned).warnings)


# Options.


def test_options_are_read_as_what_they_are() -> None:
    assert options("slurm", ["shards=4", "whole=true", "node=gpu-1"]) == {"shards": 4, "whole": True, "node": "gpu-1"}
    assert options("proxmox", ["root=/tmp"]) == {"root": Path("/tmp")}
    for target, text, expected in (
        ("slurm", "shrds=4", "did you mean shards=…?"),
        ("slurm", "shards=four", "a whole number"),
        ("slurm", "whole=yes", "true or false"),
        ("docker", "image=x", "expected: none"),
        ("slrum", "shards=4", "did you mean slurm?"),
    ):
        with pytest.raises(GpuInputError) as caught:
            options(target, [text])
        assert expected in str(caught.value)
    assert "compose has no option 'imge'\n    expected: did you mean image?" in refusal("compose", None, imge="x")


def test_the_json_document_is_what_is_rendered() -> None:
    from paddock.gpu.render import to_document

    rendered = render("cdi", TWO)
    document = json.loads(json.dumps(to_document(rendered)))
    assert (document["schema"], document["target"]) == (1, "cdi")
    assert {file["path"]: (file["mode"], file["text"]) for file in document["files"]} == {
        file.path: (f"{file.mode:04o}", file.text) for file in rendered.files
    }

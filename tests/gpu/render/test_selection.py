"""Whatever the machine and the request: what is rendered names the chosen GPUs, all of them and no others."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paddock.gpu.errors import GpuError, NoGpu
from paddock.gpu.leases.request import Request
from paddock.gpu.leases.selection import choose
from paddock.gpu.model import Ecc, Inventory, Pair, Utilisation
from paddock.gpu.render import TARGETS, render
from tests.support.boxes import MODELS, box, divided, gpu, process
from tests.support.explore import examples


@st.composite
def machines(draw: st.DrawFn) -> Inventory:
    gpus = []
    models = st.sampled_from(sorted(MODELS))
    minors = draw(st.permutations(range(8)))
    for index in range(draw(st.integers(0, 6))):
        state = draw(st.sampled_from(["ok", "ok", "ok", "lost", "unreadable"]))
        busy = draw(st.sampled_from([(), (), (process(77, 300),)]))
        generated = gpu(index, draw(models), minor=minors[index], state=state, processes=busy)
        gpus.append(replace(generated, recovery_action=draw(st.sampled_from([None, "none", "none", "gpu-reset"]))))
    if gpus and draw(st.booleans()):
        gpus[-1] = replace(divided(len(gpus) - 1, parts=draw(st.integers(0, 3))), minor=gpus[-1].minor)
    linked = draw(st.booleans())
    pairs = [Pair(a.index, b.index, "system", draw(st.integers(0, 4))) for a, b in combinations(gpus, 2) if linked]
    return replace(box(gpus, pairs), reason=None if gpus else "This machine has no GPU.")


requests = st.none() | st.builds(
    Request,
    count=st.integers(1, 4),
    min_memory_gib=st.sampled_from([0, 20]),
    prefer=st.sampled_from([(), ("T4",)]),
    exclude=st.sampled_from([(), ("a10g",)]),
)
environments = st.sampled_from([{}, {}, {"NVIDIA_VISIBLE_DEVICES": "0,1,3"}, {"CUDA_VISIBLE_DEVICES": "GPU-00000002"}])


def chosen(machine: Inventory, request: Request | None, environ: dict[str, str]) -> set[str] | None:
    """By the environment's own variables; None where a request cannot be met."""
    text = render("environment", machine, request, environ=environ).text("gpu.env")
    (line,) = re.findall(r"^NVIDIA_VISIBLE_DEVICES=(.*)$", text, re.MULTILINE)
    return set() if line == "void" else set(line.split(","))


@examples(40, 1000)
@given(machines(), requests, environments)
def test_every_target_names_exactly_the_chosen_gpus(
    machine: Inventory, request: Request | None, environ: dict[str, str]
) -> None:
    try:
        uuids = chosen(machine, request, environ)
    except GpuError:
        for target in set(TARGETS) - {"proxmox"}:
            try:
                raise AssertionError(
                    f"{target} rendered what cannot be had: {render(target, machine, request, environ=environ)}"
                )
            except GpuError:
                continue
        return
    assert uuids is not None
    gpus = [machine.gpu(uuid) for uuid in uuids]
    assert all(
        device is not None and device.state == "ok" and device.recovery_action in {None, "none"} for device in gpus
    )
    if request:
        assert len(uuids) == request.count
        if not environ:
            assert uuids == {device.uuid for device in choose(machine, request, visible=None).taken}

    words = shlex.split(render("docker", machine, request, environ=environ).text("docker-run.args"))
    named = re.findall(r"(?:GPU|MIG)-[\w-]+", words[words.index("--gpus") + 1]) if "--gpus" in words else []
    assert Counter(named) == Counter(uuids)

    sdk = json.loads(render("docker-sdk", machine, request, environ=environ).text("docker-sdk.json"))
    assert Counter(uuid for device in sdk.get("device_requests", []) for uuid in device["DeviceIDs"]) == Counter(uuids)

    service = yaml.safe_load(render("compose", machine, request, environ=environ).text("compose.yaml"))["services"][
        "gpu"
    ]
    devices = service.get("deploy", {"resources": {"reservations": {"devices": []}}})["resources"]["reservations"][
        "devices"
    ]
    assert Counter(uuid for device in devices for uuid in device["device_ids"]) == Counter(uuids)

    if uuids:
        names = render("cdi", machine, request, environ=environ).text("devices.txt").split()
        assert Counter(names) == Counter(f"nvidia.com/gpu={uuid}" for uuid in uuids)

    pod = yaml.safe_load(render("kubernetes", machine, request, environ=environ).text("pod.yaml"))["spec"]
    (container,) = pod["containers"]
    assert sum(container.get("resources", {}).get("limits", {}).values()) == len(uuids)
    product = pod.get("nodeSelector", {}).get("nvidia.com/gpu.product")
    assert product is None or {str(device and device.name).replace(" ", "-") for device in gpus} == {product}


@examples(40, 1000)
@given(machines(), requests, environments)
def test_slurm_is_given_the_device_files_of_the_chosen_gpus(
    machine: Inventory, request: Request | None, environ: dict[str, str]
) -> None:
    try:
        uuids = chosen(machine, request, environ) or set()
        rendered = render("slurm", machine, request, environ=environ)
    except GpuError:
        return
    minors = {device.minor for device in machine.gpus if device.uuid in uuids}
    files: list[int] = []
    kinds: Counter[str] = Counter()
    lines = [line for line in rendered.text("gres.conf").splitlines() if not line.startswith("#")]
    assert len(set(lines)) == len(lines), "Slurm refuses two lines that are the same"
    for line in lines:
        fields = dict(word.split("=", 1) for word in line.split())
        numbers = _numbers(fields["File"].removeprefix("/dev/nvidia"))
        files += numbers
        kinds[fields["Type"]] += len(numbers)
        if "Links" in fields:
            links = fields["Links"].split(",")
            assert len(links) == len(uuids)
            assert links.count("-1") == 1
    assert Counter(files) == Counter(minors)
    gres = re.findall(r"gpu:([^:,\s]+):(\d+)", rendered.text("slurm-gpu.conf"))
    assert {kind: int(count) for kind, count in gres} == dict(kinds)


def _numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.strip("[]").split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def test_a_gpu_lost_later_is_not_rendered_again() -> None:
    eight = [gpu(index, minor=index, utilisation=Utilisation()) for index in range(8)]
    before = render("docker", box(eight), {"All": True}).text("docker-run.args")
    assert "--gpus all" in before
    eight[3] = replace(eight[3], state="lost", reason="GPU is lost")
    after = render("docker", box(eight), {"All": True})
    assert "all" not in after.text("docker-run.args")
    assert "GPU-00000003" not in after.text("docker-run.args")
    assert after.warnings == ("GPU 3 is left out: it is lost: GPU is lost.",)


def test_an_unhealthy_gpu_is_left_out_or_refused_where_it_is_named() -> None:
    sick = box([gpu(0, ecc=Ecc(True, 0, 3, 3, 0), minor=0), gpu(1, minor=1)])
    rendered = render("docker", sick)
    assert "GPU-00000000" not in rendered.text("docker-run.args")
    assert rendered.warnings[0].startswith("GPU 0 is left out: 3 uncorrectable memory errors")
    with pytest.raises(NoGpu, match=r"GPU 0 cannot be given: 3 uncorrectable(.|\n)*--accept-degraded"):
        render("docker", sick, {"Enabled": True, "GPUIDs": [0]})
    for selection in (None, {"Enabled": True, "GPUIDs": [0]}, Request(count=2, accept_degraded=True)):
        assert "GPU-00000000" in render("docker", sick, selection, accept_degraded=True).text("docker-run.args")

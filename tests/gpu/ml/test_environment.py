"""ML environments: what is picked for which driver and GPU, what is rendered, and what is looked at from inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.catalog.ml_images import images, wheels
from paddock.gpu.errors import GpuError, GpuInputError, NoGpu
from paddock.gpu.leases.manager import Leases, NoneFree
from paddock.gpu.leases.request import Request
from paddock.gpu.ml import environment as ml
from paddock.gpu.ml import start as ml_start
from paddock.gpu.ml.choice import pick
from paddock.gpu.model import Driver, Inventory
from tests.support.boxes import box, gpu, h100s
from tests.support.docker import StandIn, stand_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases need Linux's /proc")


def on(driver: str, *models: str) -> Inventory:
    inventory = box([gpu(number, model) for number, model in enumerate(models or ("h100",))])
    return replace(inventory, driver=Driver(driver))


@pytest.fixture
def create(leases: Leases) -> Callable[..., dict[str, Any]]:
    """Return an environment on four H100s, whose lease lives as long as this test."""

    def make(framework: str = "pytorch", /, *, machine: Inventory | None = None, **more: Any) -> dict[str, Any]:
        inventory = machine or replace(h100s(4), driver=Driver("580.95.05"))
        return ml.environment(framework, leases=leases, read_inventory=lambda: inventory, owner=os.getpid(), **more)

    return make


@pytest.mark.parametrize(("driver", "model", "cuda", "verdict"), [
    ("595.58.03", "h100", "13.0", "ok"),
    ("580.95.05", "h100", "13.0", "ok"),
    ("570.124.06", "h100", "12.8", "ok"),
    ("560.35.05", "h100", "12.6", "ok"),
    ("535.104.05", "h100", "11.8", "ok"),
    ("525.60.13", "t4", "11.8", "ok"),
    ("450.80.02", "t4", "11.8", "minor-version"),
])  # fmt: skip
def test_the_newest_image_that_the_driver_runs_with_every_feature(
    driver: str, model: str, cuda: str, verdict: str
) -> None:
    picked = pick("pytorch", on(driver, model), contained=True)
    assert (picked.cuda, picked.verdict) == (cuda, verdict)
    assert f"cuda{cuda}-" in str(picked.image)


def test_wheels_and_images_follow_their_own_tables() -> None:
    assert pick("pytorch", on("595.58.03"), contained=False).cuda == "13.2"
    picked = pick("pytorch", on("570.124.06"), contained=False).build
    assert getattr(picked, "index", None) == "https://download.pytorch.org/whl/cu128"


def test_a_gpu_without_support_in_a_build_gets_an_older_one() -> None:
    v100 = replace(gpu(0, "odd"), name="Tesla V100-SXM2-16GB", compute_capability="7.0", pci_device_id="10de:1db1")
    picked = pick("pytorch", replace(box([v100]), driver=Driver("580.95.05")), contained=True)
    assert picked.cuda == "12.6"


def test_the_worst_of_mixed_gpus_counts() -> None:
    b200 = replace(gpu(1, "odd"), name="NVIDIA B200", compute_capability="10.0", pci_device_id="10de:2901")
    v100 = replace(gpu(0, "odd"), name="Tesla V100-SXM2-16GB", compute_capability="7.0", pci_device_id="10de:1db1")
    with pytest.raises(GpuError, match="does not run here") as caught:
        pick("pytorch", replace(box([v100, b200]), driver=Driver("580.95.05")), contained=True)
    assert "fix: " in str(caught.value)


def test_none_runs_and_the_cheapest_fix_is_said() -> None:
    with pytest.raises(GpuError) as caught:
        pick("jax", on("450.80.02", "t4"), contained=True)
    assert "is below" in str(caught.value)
    assert "fix: " in str(caught.value)


@pytest.mark.parametrize(("more", "message"), [
    ({"image": "pytorch/pytorch:latest"}, "fix: pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"),
    ({"image": "pytorch/pytorch"}, "a tag that names versions"),
    ({"image": "tensorflow/tensorflow:latest-gpu"}, "a tag that names versions"),
    ({"image": "host:5000/pytorch"}, "a tag that names versions"),
    ({"cuda": "12.7"}, "one of 13.0, 12.8, 12.6, 11.8"),
    ({"image": "x/y:cuda12.8", "cuda": "12.6"}, "holds CUDA 12.8"),
    ({"target": "vm"}, "one of docker, kubernetes, venv"),
    ({"target": "venv", "image": "x:1"}, "a venv has no image"),
    ({"target": "kubernetes", "start": True}, "kubectl apply"),
])  # fmt: skip
def test_an_impossible_environment_leases_nothing(create: Any, leases: Leases, more: Any, message: str) -> None:
    with pytest.raises(GpuInputError) as caught:
        create(**more)
    assert message in str(caught.value)
    assert leases.all() == ()


def test_a_requested_cuda_that_cannot_run_suggests_another(leases: Leases) -> None:
    with pytest.raises(GpuError, match=r"fix: --cuda 12\.8, which runs here"):
        ml.environment(
            "pytorch", cuda="13.0", leases=leases, read_inventory=lambda: on("570.124.06"), owner=os.getpid()
        )
    assert leases.all() == ()


def test_an_image_without_a_cuda_version_is_not_evaluated(create: Any) -> None:
    document = create(image="registry.example/ours:1.4")
    assert document["verdict"] == "unknown"
    assert any("does not name its CUDA" in note for note in document["notes"])


@pytest.mark.parametrize("image", ["--privileged:1", "-v/:/host:1", "UPPER:1", "a b:1", "x:1\n", ":1"])
def test_an_image_is_no_option_of_docker(create: Any, leases: Leases, image: str) -> None:
    with pytest.raises(GpuInputError, match="is not an image reference"):
        create(image=image)
    assert leases.all() == ()


def test_docker_gets_the_leased_gpus_by_uuid(create: Any, leases: Leases) -> None:
    document = create(gpus=2, min_memory_gib=40)
    (command,) = document["commands"]
    assert command[:3] == ["docker", "run", "--rm"]
    assert any(f'"device={",".join(document["gpus"])}"' in word for word in command)
    assert [lease.id for lease, _ in leases.all()] == [document["lease"]["id"]]
    assert document["lease"]["id"] in command[command.index("--name") + 1]
    compile(document["verification"]["program"], "verification", "exec")
    json.dumps(document)


def test_kubernetes_chooses_itself_so_nothing_is_leased(create: Any, leases: Leases) -> None:
    document = create(target="kubernetes", gpus=2)
    (file,) = document["files"]
    pod = yaml.safe_load(file["text"])
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert container["image"] == document["image"]
    assert document["lease"] is None
    assert leases.all() == ()


def test_a_venv_is_pip_and_an_index(create: Any) -> None:
    document = create(target="venv", cuda="12.8", path=Path("env"))
    assert document["commands"][1] == [
        "env/bin/python", "-m", "pip", "install", "--index-url", "https://download.pytorch.org/whl/cu128",
        "torch==2.11.0",
    ]  # fmt: skip
    assert document["environment"]["CUDA_VISIBLE_DEVICES"] == ",".join(document["gpus"])


def test_limited_support_is_a_note(create: Any) -> None:
    document = create(machine=on("450.80.02", "t4"))
    assert any(note.startswith("Limited: ") for note in document["notes"])


def test_gpus_of_other_vendors_get_their_own_builds() -> None:
    amd = replace(gpu(0), vendor="amd", name="AMD Instinct MI300X", compute_capability="gfx942")
    picked = pick("pytorch", replace(box([amd]), driver=None, backend="amd-sysfs"), contained=True)
    assert str(picked.image).startswith("rocm/pytorch:")
    assert picked.verdict == "unknown"
    apple = replace(gpu(0), vendor="apple", name="Apple M4", compute_capability=None)
    inventory = replace(box([apple]), driver=None, backend="apple")
    with pytest.raises(GpuError, match="fix: --target venv"):
        pick("pytorch", inventory, contained=True)
    assert pick("pytorch", inventory, contained=False).build == next(build for build in wheels() if build.metal)
    with pytest.raises(GpuInputError, match="no wheels of jax for apple GPUs\n    expected: pytorch"):
        pick("jax", inventory, contained=False)


def test_no_gpu_and_no_free_gpu_are_different_errors(create: Any, leases: Leases) -> None:
    with pytest.raises(NoGpu):
        create(machine=replace(box([]), reason="This machine has no GPU."))
    create(gpus=4)
    with pytest.raises(NoneFree, match="leased"):
        create()


def test_the_older_connectors_configuration_is_accepted(create: Any) -> None:
    arguments = ml.from_dict(
        {
            "GPURequirements": {
                "MinMemoryGB": 8.0,
                "RequiredGPUs": 1,
                "WorkloadType": "ml",
                "PreferredModels": ["RTX"],
            },
            "Framework": "pytorch",
            "ContainerImage": "pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime",
            "RequiredCUDAVersion": "12.8",
        }
    )
    assert arguments["request"] == Request(count=1, min_memory_gib=8.0, workload="training", prefer=("RTX",))
    assert create(arguments.pop("framework"), **arguments)["cuda"] == "12.8"
    with pytest.raises(GpuInputError, match="did you mean Framework"):
        ml.from_dict({"Framwork": "pytorch"})


def test_the_catalogues_images_state_the_cuda_that_their_row_does() -> None:
    from paddock.catalog.cuda_match import tag_cuda

    for image in images():
        assert image.image.rpartition(":")[2] not in ("", "latest")
        version = tag_cuda(image.image)
        if version and image.cuda:
            assert version.split(".")[:2] == image.cuda.split("."), image
        assert (image.cuda is None) != (image.rocm is None), image
    for build in wheels():
        assert [build.cuda is not None, build.rocm is not None, build.metal].count(True) == 1, build
        assert all("==" in package for package in build.packages), build


@pytest.mark.parametrize(("document", "ok", "why"), [
    ({"uuids": ["AAAA-1", "bbbb-2"], "count": 2}, True, "these and no others"),
    ({"uuids": ["aaaa-1"], "count": 1}, False, "does not see GPU-bbbb-2"),
    ({"uuids": ["aaaa-1", "bbbb-2", "cccc-3"], "count": 3}, False, "also sees cccc-3"),
    ({"uuids": ["aaaa-1", "bbbb-2"], "count": 0}, False, "it uses 0"),
    ({"uuids": [], "count": 0}, False, "does not see GPU-aaaa-1, GPU-bbbb-2"),
    ({"uuids": None, "count": 2}, True, "does not report which"),
    ({"uuids": None, "count": 8}, False, "8 of 2"),
    ({"error": "ImportError: libcudnn", "uuids": None, "count": None}, False, "libcudnn"),
])  # fmt: skip
def test_visible_gpus_are_compared_with_the_leased_ones(document: dict[str, Any], ok: bool, why: str) -> None:
    visibility = ml_start.compare(["GPU-aaaa-1", "GPU-bbbb-2"], document)
    assert visibility.ok is ok
    assert why in visibility.why


def test_mig_parts_stand_for_the_gpus_they_are_of() -> None:
    text = textwrap.dedent("""
        GPU 0: NVIDIA A100 (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
          MIG 1g.5gb      Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
    """)
    assert ml_start.parse_smi_list(text) == {"uuids": ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"], "count": 1}


TORCH = """
import os
__version__ = "{version}"
_shown = [one.removeprefix("GPU-") for one in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]{wrong}
class version:
    hip = None
class backends:
    pass
class cuda:
    is_available = staticmethod(lambda: bool(_shown))
    device_count = staticmethod(lambda: len(_shown))
    @staticmethod
    def get_device_properties(number):
        return type("Properties", (), {{"uuid": _shown[number]}})()
"""


@pytest.mark.e2e
def test_a_real_environment_sees_the_leased_gpus_and_keeps_the_lease(
    create: Any, leases: Leases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filled by a real pip from a folder in which a made-up torch lies."""
    about = "torch-2.11.0.dist-info"
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels/torch-2.11.0-py3-none-any.whl", "w") as file:
        file.writestr("torch/__init__.py", TORCH.format(version="2.11.0", wrong=""))
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    document = create(target="venv", cuda="12.8", gpus=2, start=True, path=tmp_path / "env")
    assert document["started"]
    assert document["seen"]["ok"]
    assert sorted(document["seen"]["seen"]) == sorted(document["gpus"])
    assert document["seen"]["version"] == "2.11.0"
    assert [lease.id for lease, _ in leases.all()] == [document["lease"]["id"]]


VENV = """#!/bin/sh
mkdir -p "$3/bin"
cat > "$3/bin/python" <<'END'
#!/bin/sh
[ "$1" = -m ] && exit {pip}
PYTHONPATH={modules} exec {python} "$@"
END
chmod +x "$3/bin/python"
"""


class TestStartedWithAStandInForVenv:
    """A program in the place of Python, whose environments have a made-up torch, and a pip that ends as it is told."""

    @pytest.fixture
    def start(self, create: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
        def start(wrong: str = "", pip: int = 0) -> dict[str, Any]:
            (tmp_path / "torch").mkdir()
            (tmp_path / "torch/__init__.py").write_text(TORCH.format(version="2.11.0", wrong=wrong))
            python = tmp_path / "python"
            python.write_text(VENV.format(pip=pip, modules=tmp_path, python=sys.executable))
            python.chmod(0o755)
            monkeypatch.setattr(sys, "executable", str(python))
            document: dict[str, Any] = create(target="venv", cuda="12.8", gpus=2, start=True, path=tmp_path / "env")
            return document

        return start

    @pytest.mark.parametrize("wrong", [" + ['00000003-aaaa']", "[1:]", "; raise OSError('libcudnn.so.9')"])
    def test_a_mismatch_leaves_neither_lease_nor_folder(
        self, start: Any, leases: Leases, tmp_path: Path, wrong: str
    ) -> None:
        with pytest.raises(GpuError, match=r"pytorch does not see the GPUs.*: (it|OSError)"):
            start(wrong)
        assert leases.all() == ()
        assert not (tmp_path / "env").exists()

    def test_what_pip_cannot_find_leaves_nothing(self, start: Any, leases: Leases, tmp_path: Path) -> None:
        with pytest.raises(GpuError, match="pip install"):
            start(pip=1)
        assert leases.all() == ()
        assert not (tmp_path / "env").exists()

    def test_an_existing_folder_is_refused(self, start: Any, tmp_path: Path) -> None:
        (tmp_path / "env").mkdir()
        (tmp_path / "env" / "thesis.txt").touch()
        with pytest.raises(GpuInputError, match="already exists"):
            start()
        assert (tmp_path / "env" / "thesis.txt").exists()


INSIDE = """
if argv[0] == "exec":
    run = next(one for one in calls if one[0] == "run")
    uuids = run[run.index("--gpus") + 1].strip('"').removeprefix("device=").split(",") + {besides}
    print(json.dumps({{"uuids": uuids, "count": len(uuids), "version": "2.13.0"}}))
"""


class TestStartedWithAStandInForDocker:
    """A program called docker, which shows the framework what it was told to give, or more."""

    @pytest.fixture
    def engine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], StandIn]:
        def make(body: str) -> StandIn:
            program = stand_in(tmp_path / "bin", body)
            monkeypatch.setenv("PATH", program.path)
            return program

        return make

    def test_it_is_probed_from_inside_and_keeps_the_lease(self, create: Any, leases: Leases, engine: Any) -> None:
        docker = engine(INSIDE.format(besides=[]))
        document = create(gpus=2, start=True)
        assert document["started"]
        assert document["seen"]["ok"]
        assert [call["argv"][0] for call in docker.calls()] == ["version", "run", "exec"]
        assert len(leases.all()) == 1

    def test_a_container_with_other_gpus_is_removed(self, create: Any, leases: Leases, engine: Any) -> None:
        docker = engine(INSIDE.format(besides=["x"]))
        with pytest.raises(GpuError, match="it also sees x"):
            create(gpus=2, start=True)
        assert docker.calls()[-1]["argv"][:2] == ["rm", "--force"]
        assert leases.all() == ()

    def test_without_an_engine_it_is_only_rendered(self, create: Any, engine: Any) -> None:
        engine("sys.exit('Cannot connect to the Docker daemon')")
        document = create(start=True)
        assert not document["started"]
        assert document["commands"]
        assert any("Nothing was started: Cannot connect" in note for note in document["notes"])


def test_the_probe_runs_alone_and_reports_a_missing_driver(tmp_path: Path) -> None:
    def probe(framework: str) -> dict[str, Any]:
        words, program = [sys.executable, "-I", "-S", "-", framework], ml_start.probe_program()
        result = subprocess.run(words, input=program, text=True, capture_output=True, check=True, cwd=tmp_path)
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    bare = probe("none")
    assert bare["error"] or bare["uuids"]
    assert probe("jax")["error"].startswith("ModuleNotFoundError")


def test_the_command_prints_what_can_be_run(
    driver: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from paddock.tasks.program import main

    driver("8xh100")
    monkeypatch.setenv("PADDOCK_GPU_LEASES", str(tmp_path / "leases"))
    (tmp_path / "c.json").write_text(json.dumps({"Framework": "jax", "GPURequirements": {"RequiredGPUs": 2}}))
    words = ["inv", "gpu.ml-env", "--target", "venv", "--path", "env", "--owner", str(os.getpid()), "--config"]
    assert main([*words, str(tmp_path / "c.json")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].count("GPU-") == 2
    assert "env/bin/python -m pip install 'jax[cuda13]" in out[2]
    assert any(line.startswith("export CUDA_VISIBLE_DEVICES=GPU-") for line in out)
    assert main([*words, str(tmp_path / "absent.json")]) == 2
    assert "MLEnvironmentConfig as JSON" in capsys.readouterr().err

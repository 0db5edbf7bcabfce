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
def leases(tmp_path: Path) -> Leases:
    return Leases(tmp_path / "leases", environ={})


@pytest.fixture
def made(leases: Leases) -> Callable[..., dict[str, Any]]:
    """An environment on four H100s, whose lease lives as long as this test."""

    def make(framework: str = "pytorch", /, *, look: Inventory | None = None, **more: Any) -> dict[str, Any]:
        found = look or replace(h100s(4), driver=Driver("580.95.05"))
        return ml.environment(framework, leases=leases, read_inventory=lambda: found, owner=os.getpid(), **more)

    return make


@pytest.mark.parametrize(
    ("driver", "model", "cuda", "verdict"),
    [
        ("595.58.03", "h100", "13.0", "ok"),
        ("580.95.05", "h100", "13.0", "ok"),
        ("570.124.06", "h100", "12.8", "ok"),
        ("560.35.05", "h100", "12.6", "ok"),
        ("535.104.05", "h100", "11.8", "ok"),
        ("525.60.13", "t4", "11.8", "ok"),
        ("450.80.02", "t4", "11.8", "minor-version"),
    ],
)
def test_the_newest_image_that_the_driver_runs_with_every_feature(
    driver: str, model: str, cuda: str, verdict: str
) -> None:
    found = pick("pytorch", on(driver, model), contained=True)
    assert (found.cuda, found.verdict) == (cuda, verdict)
    assert f"cuda{cuda}-" in str(found.image)


def test_wheels_and_images_follow_their_own_tables() -> None:
    assert pick("pytorch", on("595.58.03"), contained=False).cuda == "13.2"
    found = pick("pytorch", on("570.124.06"), contained=False).build
    assert found is not None
    assert getattr(found, "index", None) == "https://download.pytorch.org/whl/cu128"


def test_a_gpu_that_a_build_holds_nothing_for_gets_an_older_build() -> None:
    v100 = replace(gpu(0, "odd"), name="Tesla V100-SXM2-16GB", compute_capability="7.0", pci_device_id="10de:1db1")
    found = pick("pytorch", replace(box([v100]), driver=Driver("580.95.05")), contained=True)
    assert found.cuda == "12.6"


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


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"image": "pytorch/pytorch:latest"}, "fix: pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"),
        ({"image": "pytorch/pytorch"}, "a tag that names versions"),
        ({"image": "tensorflow/tensorflow:latest-gpu"}, "a tag that names versions"),
        ({"image": "host:5000/pytorch"}, "a tag that names versions"),
        ({"cuda": "12.7"}, "one of 13.0, 12.8, 12.6, 11.8"),
        ({"image": "x/y:cuda12.8", "cuda": "12.6"}, "holds CUDA 12.8"),
        ({"target": "vm"}, "one of docker, kubernetes, venv"),
        ({"target": "venv", "image": "x:1"}, "a venv has no image"),
        ({"target": "kubernetes", "start": True}, "kubectl apply"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_stays_leased(made: Any, leases: Leases, more: Any, said: str) -> None:
    with pytest.raises(GpuInputError) as caught:
        made(**more)
    assert said in str(caught.value)
    assert leases.all() == ()


def test_cuda_that_was_asked_for_and_does_not_run_names_one_that_does(leases: Leases) -> None:
    with pytest.raises(GpuError, match=r"fix: --cuda 12\.8, which runs here"):
        ml.environment(
            "pytorch", cuda="13.0", leases=leases, read_inventory=lambda: on("570.124.06"), owner=os.getpid()
        )
    assert leases.all() == ()


def test_an_image_whose_tag_says_nothing_is_not_judged(made: Any) -> None:
    told = made(image="registry.example/ours:1.4")
    assert told["verdict"] == "unknown"
    assert any("does not name its CUDA" in note for note in told["notes"])


def test_docker_gets_the_leased_gpus_by_uuid(made: Any, leases: Leases) -> None:
    told = made(gpus=2, min_memory_gib=40)
    (command,) = told["commands"]
    assert command[:3] == ["docker", "run", "--rm"]
    assert any(f'"device={",".join(told["gpus"])}"' in word for word in command)
    assert [lease.id for lease, _ in leases.all()] == [told["lease"]["id"]]
    assert told["lease"]["id"] in command[command.index("--name") + 1]
    compile(told["verification"]["program"], "verification", "exec")
    json.dumps(told)


def test_kubernetes_chooses_itself_so_nothing_is_leased(made: Any, leases: Leases) -> None:
    told = made(target="kubernetes", gpus=2)
    (file,) = told["files"]
    pod = yaml.safe_load(file["text"])
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert container["image"] == told["image"]
    assert told["lease"] is None
    assert leases.all() == ()


def test_a_venv_is_pip_and_an_index(made: Any) -> None:
    told = made(target="venv", cuda="12.8", path=Path("env"))
    assert told["commands"][1] == [
        "env/bin/python", "-m", "pip", "install", "--index-url", "https://download.pytorch.org/whl/cu128",
        "torch==2.11.0",
    ]  # fmt: skip
    assert told["environment"]["CUDA_VISIBLE_DEVICES"] == ",".join(told["gpus"])


def test_limited_is_said(made: Any) -> None:
    told = made(look=on("450.80.02", "t4"))
    assert any(note.startswith("Limited: ") for note in told["notes"])


def test_other_makers() -> None:
    amd = replace(gpu(0), vendor="amd", name="AMD Instinct MI300X", compute_capability="gfx942")
    found = pick("pytorch", replace(box([amd]), driver=None, backend="amd-sysfs"), contained=True)
    assert str(found.image).startswith("rocm/pytorch:")
    assert found.verdict == "unknown"
    apple = replace(gpu(0), vendor="apple", name="Apple M4", compute_capability=None)
    inventory = replace(box([apple]), driver=None, backend="apple")
    with pytest.raises(GpuError, match="fix: --target venv"):
        pick("pytorch", inventory, contained=True)
    assert pick("pytorch", inventory, contained=False).build == next(one for one in wheels() if one.metal)
    with pytest.raises(GpuInputError, match="no wheels of jax for apple GPUs\n    expected: pytorch"):
        pick("jax", inventory, contained=False)


def test_without_gpus_and_with_all_taken(made: Any, leases: Leases) -> None:
    with pytest.raises(NoGpu):
        made(look=replace(box([]), reason="This machine has no GPU."))
    made(gpus=4)
    with pytest.raises(NoneFree, match="leased"):
        made()


def test_the_older_connectors_configuration_is_accepted(made: Any) -> None:
    given = ml.from_dict(
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
    assert given["request"] == Request(count=1, min_memory_gib=8.0, workload="training", prefer=("RTX",))
    assert made(given.pop("framework"), **given)["cuda"] == "12.8"
    with pytest.raises(GpuInputError, match="did you mean Framework"):
        ml.from_dict({"Framwork": "pytorch"})


def test_the_catalogues_images_state_the_cuda_that_their_row_does() -> None:
    from paddock.catalog.cuda_match import tag_cuda

    for image in images():
        assert image.image.rpartition(":")[2] not in ("", "latest")
        stated = tag_cuda(image.image)
        if stated and image.cuda:
            assert stated.split(".")[:2] == image.cuda.split("."), image
        assert (image.cuda is None) != (image.rocm is None), image
    for one in wheels():
        assert [one.cuda is not None, one.rocm is not None, one.metal].count(True) == 1, one
        assert all("==" in package for package in one.packages), one


@pytest.mark.parametrize(
    ("told", "ok", "why"),
    [
        ({"uuids": ["AAAA-1", "bbbb-2"], "count": 2}, True, "these and no others"),
        ({"uuids": ["aaaa-1"], "count": 1}, False, "does not see GPU-bbbb-2"),
        ({"uuids": ["aaaa-1", "bbbb-2", "cccc-3"], "count": 3}, False, "also sees cccc-3"),
        ({"uuids": ["aaaa-1", "bbbb-2"], "count": 0}, False, "it uses 0"),
        ({"uuids": [], "count": 0}, False, "does not see GPU-aaaa-1, GPU-bbbb-2"),
        ({"uuids": None, "count": 2}, True, "does not report which"),
        ({"uuids": None, "count": 8}, False, "8 of 2"),
        ({"error": "ImportError: libcudnn", "uuids": None, "count": None}, False, "libcudnn"),
    ],
)
def test_what_is_seen_is_held_against_what_was_leased(told: dict[str, Any], ok: bool, why: str) -> None:
    seen = ml_start.compare(["GPU-aaaa-1", "GPU-bbbb-2"], told)
    assert seen.ok is ok
    assert why in seen.why


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


def wheel(folder: Path, version: str, wrong: str = "") -> None:
    """Of a module called torch that sees just what CUDA_VISIBLE_DEVICES names, or what `wrong` makes of it."""
    folder.mkdir()
    about = f"torch-{version}.dist-info"
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as file:
        file.writestr("torch/__init__.py", TORCH.format(version=version, wrong=wrong))
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")


class TestStartedWithAStandInForTorch:
    """A real virtual environment, filled by a real pip from a folder in which a made-up torch lies."""

    @pytest.fixture(autouse=True)
    def _index(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))

    def test_it_sees_just_the_leased_gpus_and_the_lease_stays(self, made: Any, leases: Leases, tmp_path: Path) -> None:
        wheel(tmp_path / "wheels", "2.11.0")
        told = made(target="venv", cuda="12.8", gpus=2, start=True, path=tmp_path / "env")
        assert told["started"]
        assert told["seen"]["ok"]
        assert sorted(told["seen"]["seen"]) == sorted(told["gpus"])
        assert told["seen"]["version"] == "2.11.0"
        assert [lease.id for lease, _ in leases.all()] == [told["lease"]["id"]]

    @pytest.mark.parametrize("wrong", [" + ['00000003-aaaa']", "[1:]", "; raise OSError('libcudnn.so.9')"])
    def test_a_mismatch_is_said_and_leaves_neither_lease_nor_folder(
        self, made: Any, leases: Leases, tmp_path: Path, wrong: str
    ) -> None:
        wheel(tmp_path / "wheels", "2.11.0", wrong)
        with pytest.raises(GpuError, match=r"pytorch does not see the GPUs.*: (it|OSError)"):
            made(target="venv", cuda="12.8", gpus=2, start=True, path=tmp_path / "env")
        assert leases.all() == ()
        assert not (tmp_path / "env").exists()

    def test_what_pip_cannot_find_leaves_nothing(self, made: Any, leases: Leases, tmp_path: Path) -> None:
        with pytest.raises(GpuError, match="pip install"):
            made(target="venv", cuda="12.8", start=True, path=tmp_path / "env")
        assert leases.all() == ()
        assert not (tmp_path / "env").exists()

    def test_a_folder_that_is_there_is_left_alone(self, made: Any, tmp_path: Path) -> None:
        (tmp_path / "env").mkdir()
        (tmp_path / "env" / "thesis.txt").touch()
        with pytest.raises(GpuInputError, match="already exists"):
            made(target="venv", start=True, path=tmp_path / "env")
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
            found = stand_in(tmp_path / "bin", body)
            monkeypatch.setenv("PATH", found.path)
            return found

        return make

    def test_it_is_looked_at_from_inside_and_the_lease_stays(self, made: Any, leases: Leases, engine: Any) -> None:
        docker = engine(INSIDE.format(besides=[]))
        told = made(gpus=2, start=True)
        assert told["started"]
        assert told["seen"]["ok"]
        assert [call["argv"][0] for call in docker.calls()] == ["version", "run", "exec"]
        assert len(leases.all()) == 1

    def test_one_that_shows_too_much_is_removed(self, made: Any, leases: Leases, engine: Any) -> None:
        docker = engine(INSIDE.format(besides=["x"]))
        with pytest.raises(GpuError, match="it also sees x"):
            made(gpus=2, start=True)
        assert docker.calls()[-1]["argv"][:2] == ["rm", "--force"]
        assert leases.all() == ()

    def test_without_an_engine_it_is_rendered_and_said(self, made: Any, engine: Any) -> None:
        engine("sys.exit('Cannot connect to the Docker daemon')")
        told = made(start=True)
        assert not told["started"]
        assert told["commands"]
        assert any("Nothing was started: Cannot connect" in note for note in told["notes"])


def test_what_looks_from_inside_runs_alone_and_says_when_there_is_no_driver(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-", "none"], input=ml_start.probe_program(), text=True, capture_output=True,
        check=True, cwd=tmp_path,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert told["error"] or told["uuids"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-", "jax"],
        input=ml_start.probe_program(),
        text=True,
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["error"].startswith("ModuleNotFoundError")


def test_the_command_prints_what_can_be_run(
    driver: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from paddock.gpu.actions.registry import ACTIONS
    from paddock.gpu.cli.program import perform

    driver("8xh100")
    monkeypatch.setenv("PADDOCK_GPU_LEASES", str(tmp_path / "leases"))
    (tmp_path / "c.json").write_text(json.dumps({"Framework": "jax", "GPURequirements": {"RequiredGPUs": 2}}))
    flags = {"config": tmp_path / "c.json", "target": "venv", "path": Path("env"), "owner": os.getpid()}
    assert perform(ACTIONS["ml-env"], flags, source=None, as_json=False) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].count("GPU-") == 2
    assert "env/bin/python -m pip install 'jax[cuda13]" in out[2]
    assert any(line.startswith("export CUDA_VISIBLE_DEVICES=GPU-") for line in out)
    with pytest.raises(GpuInputError, match="MLEnvironmentConfig as JSON"):
        perform(ACTIONS["ml-env"], {**flags, "config": tmp_path / "absent.json"}, source=None, as_json=False)

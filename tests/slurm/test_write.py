"""Files of a node: their content, and their safe replacement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from paddock.gpu.model import Utilisation
from paddock.gpu.render.rendered import File, headed
from paddock.slurm.detect.machine import Detection, detect
from paddock.slurm.errors import SlurmError, SlurmInputError
from paddock.slurm.write.node_files import NodeFiles, node_files
from paddock.slurm.write.replacement import apply, changes
from paddock.slurm.write.slurm_files import Cluster, Node, slurm_files
from tests.support.boxes import box, divided, gpu
from tests.support.gpu_machines import NO_GPU, machines


def detection(count: int = 4) -> Detection:
    return detect(box([gpu(index, minor=index) for index in range(count)]), None)


def generated(folder: Path, count: int = 4, prefix: str = "paddock") -> NodeFiles:
    return node_files(detection(count), prefix, "paddock/slurm:nvidia", folder)


def write(folder: Path, files: tuple[File, ...]) -> dict[str, str]:
    all_changes = changes(files, folder)
    apply(all_changes, folder)
    return {change.file.path: change.state for change in all_changes}


def test_all_machines_get_files_for_what_they_have(tmp_path: Path) -> None:
    for name, inventory in machines(tmp_path).items():
        if name == "mig":
            continue
        files = {file.path: file.text for file in node_files(detect(inventory, None), "p", "image", tmp_path).files}
        assert set(files) == {"slurm.conf", "gres.conf", "cgroup.conf", "compose.yaml", "inventory.json"}
        assert ("Gres=gpu" in files["slurm.conf"]) == bool(inventory.gpus)
        assert "GresTypes=gpu,shard" in files["slurm.conf"], "a queued job keeps its request without GPUs"
        assert files["slurm.conf"].count("NodeName=") == 1


def test_gpus_of_a_divided_card_are_refused_without_nvml(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="MIG"):
        node_files(detect(box([divided(0)]), None), "p", "image", tmp_path)


def test_compose_gives_all_gpus_by_that_word_and_some_by_uuid(tmp_path: Path) -> None:
    def devices(count_lost: int) -> object:
        gpus = [gpu(index, minor=index) for index in range(3)]
        gpus[2] = replace(gpus[2], state="lost") if count_lost else gpus[2]
        files = node_files(detect(box(gpus), None), "lab", "image", tmp_path).files
        text = next(file.text for file in files if file.path == "compose.yaml")
        return yaml.safe_load(text)["services"]["lab-slurm"]["deploy"]["resources"]["reservations"]["devices"][0]

    assert devices(0) == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert devices(1) == {"driver": "nvidia", "device_ids": ["GPU-00000000-aaaa", "GPU-00000001-aaaa"],
                          "capabilities": ["gpu"]}  # fmt: skip


def test_compose_never_pulls_and_gains_no_privileges(tmp_path: Path) -> None:
    text = next(file.text for file in generated(tmp_path).files if file.path == "compose.yaml")
    service = yaml.safe_load(text)["services"]["paddock-slurm"]
    assert service["pull_policy"] == "never", "an image of this name in a registry would not be ours"
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service
    assert all("127.0.0.1" in port for port in service.get("ports", []))


def test_compose_passes_how_many_jobs_share_a_gpu(tmp_path: Path) -> None:
    files = {file.path: file.text for file in node_files(detection(), "p", "image", tmp_path, shards=4).files}
    assert yaml.safe_load(files["compose.yaml"])["services"]["p-slurm"]["command"] == ["--shards", "4"]
    assert "Name=shard Count=16" in files["gres.conf"]


@pytest.mark.parametrize("prefix", ["", "Lab", "a_b", "-lab", "x" * 50, "lab;rm"])
def test_a_prefix_that_is_no_host_name_is_refused(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(SlurmInputError, match="--prefix"):
        generated(tmp_path, prefix=prefix)


def test_cgroups_are_disabled_where_slurm_has_the_option(tmp_path: Path) -> None:
    inventory = replace(NO_GPU, machine=replace(NO_GPU.machine, container=True))
    for version, line in (("22.05.8", "ConstrainDevices=no"), ("24.11.3", "CgroupPlugin=disabled")):
        files = slurm_files(inventory, Node(name="n", hardware="CPUs=2 RealMemory=1000", version=version))
        assert line in files.text("cgroup.conf").splitlines()


def test_settings_replace_lines_of_the_same_name() -> None:
    cluster = Cluster(settings={"SlurmUser": "root", "SlurmctldPort": "7001"})
    text = slurm_files(NO_GPU, Node(name="n", hardware="CPUs=2 RealMemory=1000"), cluster).text("slurm.conf")
    assert [line for line in text.splitlines() if line.startswith("SlurmUser=")] == ["SlurmUser=root"]
    assert text.index("SlurmctldPort=7001") < text.index("NodeName=")


def test_ten_runs_change_nothing_and_a_customised_file_stays_byte_identical(tmp_path: Path) -> None:
    write(tmp_path, generated(tmp_path).files)
    custom = (tmp_path / "slurm.conf").read_bytes() + b"# USER_CUSTOMIZED=true\r\nMaxJobCount=5 \xc3\xa9\n"
    (tmp_path / "slurm.conf").write_bytes(custom)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    for _ in range(10):
        states = write(tmp_path, generated(tmp_path).files)
    assert states["slurm.conf"] == "customised"
    assert set(states.values()) == {"customised", "unchanged"}
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()} == before
    assert write(tmp_path, generated(tmp_path, 2).files)["gres.conf"] == "updated"
    assert (tmp_path / "slurm.conf").read_bytes() == custom


def test_hand_edits_are_noticed_and_kept_as_numbered_backups(tmp_path: Path) -> None:
    write(tmp_path, generated(tmp_path).files)
    generated_text = (tmp_path / "gres.conf").read_text()
    for number in (1, 2):
        (tmp_path / "gres.conf").write_text(generated_text + f"# note {number}\n")
        change = next(
            change for change in changes(generated(tmp_path).files, tmp_path) if change.file.path == "gres.conf"
        )
        assert change.state == "edited"
        assert f"-# note {number}" in change.diff
        write(tmp_path, generated(tmp_path).files)
        assert (tmp_path / "gres.conf").read_text() == generated_text
        assert (tmp_path / f"backups/gres.conf.{number}").read_text().endswith(f"# note {number}\n")


def test_a_file_of_somebody_else_is_kept_as_a_backup(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=old\n")
    assert write(tmp_path, generated(tmp_path).files)["slurm.conf"] == "foreign"
    assert (tmp_path / "backups/slurm.conf.1").read_text() == "ClusterName=old\n"


def test_a_backup_has_the_line_ends_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "gres.conf").write_bytes(b"Name=gpu\r\nName=shard\r\n")
    write(tmp_path, generated(tmp_path).files)
    assert (tmp_path / "backups/gres.conf.1").read_bytes() == b"Name=gpu\r\nName=shard\r\n"


def test_changing_readings_do_not_rewrite_the_inventory(tmp_path: Path) -> None:
    write(tmp_path, generated(tmp_path).files)
    busy = [replace(gpu(index, minor=index), utilisation=Utilisation(97, 40)) for index in range(4)]
    later = detect(replace(box(busy), taken_at="2027-01-01T00:00:00Z"), None)
    states = write(tmp_path, node_files(later, "paddock", "paddock/slurm:nvidia", tmp_path).files)
    assert states["inventory.json"] == "unchanged"
    assert write(tmp_path, generated(tmp_path, 3).files)["inventory.json"] == "updated"


def test_a_failed_write_restores_every_file(tmp_path: Path) -> None:
    write(tmp_path, generated(tmp_path).files)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    (tmp_path / "backups").write_text("a file where the folder should be")
    with pytest.raises(SlurmError):
        write(tmp_path, generated(tmp_path, 2).files)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SlurmError, match="it is not UTF-8 text"):
        changes((headed("slurm.conf", "x\n"),), tmp_path)

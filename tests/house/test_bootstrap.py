"""`./inv` on a clean machine, after a change, after a failure, and out of the way when all is well."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from paddock.house import lock_sets
from tests.support.waiting import until

from .conftest import INSTALLERS, Checkout


@pytest.mark.parametrize(
    ("line", "sets"),
    [
        ("", ["base"]),
        ("--list", ["base"]),
        ("something-new", ["base"]),
        ("plan", ["infra"]),
        ("plan --stack prod", ["infra"]),
        ("plan --stack test", ["infra"]),
        ("plan --stack=test", ["infra"]),
        ("catalog.show", ["base"]),
        ("test -- plan", ["dev"]),
        ("plan --help", ["base"]),
        ("init --gpu t4", ["base"]),
        ("init.permissions --stack plan", ["infra"]),
        ("doctor --stack plan", ["operate"]),
        ("init.github --url acme", ["base"]),
        ("init.github --key app.pem", ["lab"]),
        ("init.github --key=app.pem", ["lab"]),
        ("smoke --expect g5.xlarge", ["bench"]),
        ("bench --engine torch", ["torch"]),
        ("build-runner --push", ["build"]),
        ("bench --batch 2 --engine=torch", ["torch"]),
        ("ami.build", ["build"]),
        ("smoke --tier 1", ["base"]),
        ("bench.load http://localhost:8000 --rate 2", ["base"]),
        ("smoke --tier=1 --json -", ["base"]),
        ("test --e2e", ["dev", "serve", "torch"]),
        ("test --explore", ["dev", "serve", "torch"]),
        ("--help test", ["base"]),
    ],
)
def test_a_task_needs_no_more_than_its_own_packages(
    inv: ModuleType, monkeypatch: pytest.MonkeyPatch, line: str, sets: list[str]
) -> None:
    monkeypatch.setattr(inv, "gpus", set)
    assert inv.needed_sets(line.split()) == sets


@pytest.mark.parametrize(("line", "maker", "needed"), [
    ("bench", "nvidia", "torch"),
    ("bench", "amd", "torch"),
    ("bench", "apple", "bench"),  # Metal is llama.cpp's
    ("bench --engine llama.cpp", "nvidia", "bench"),
    ("bench --engine=llama.cpp --batch 2", "nvidia", "bench"),
    ("bench --mode default", "nvidia", "torch"),
    ("serve.check desktop", "nvidia", "base"),
    ("bench.compare a b", "nvidia", "base"),
    ("smoke", "apple", "torch"),
    ("smoke --tier 3", "nvidia", "torch"),
    ("smoke --tier 1", "nvidia", "base"),
    ("smoke --cpu --tier 3", "nvidia", "bench"),
    ("smoke --python python3 --tier 2", "nvidia", "base"),
])  # fmt: skip
def test_a_gpu_brings_torch_where_its_work_needs_it(
    inv: ModuleType, monkeypatch: pytest.MonkeyPatch, line: str, maker: str, needed: str
) -> None:
    monkeypatch.setattr(inv, "gpus", lambda: {maker})
    assert inv.needed_sets(line.split()) == [needed]


@pytest.mark.parametrize(("files", "environ", "makers"), [
    ("", {}, set()),
    ("dev/nvidia0 dev/nvidiactl", {}, {"nvidia"}),
    ("dev/nvidia7 dev/nvidia-caps .dockerenv", {"NVIDIA_VISIBLE_DEVICES": "void"}, {"nvidia"}),
    ("dev/nvidiactl dev/nvidia-uvm dev/nvidia-modeset", {}, set()),
    ("proc/driver/nvidia/gpus/0000:01:00.0", {}, {"nvidia"}),
    ("proc/driver/nvidia/gpus/0000:01:00.0 run/.containerenv", {}, set()),
    ("proc/driver/nvidia/gpus/0000:01:00.0", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, set()),
    ("dev/dxg usr/lib/wsl/lib/libcuda.so.1", {}, {"nvidia"}),
    ("dev/dxg usr/lib/wsl/lib/libdxcore.so", {}, set()),
    ("dev/kfd sys/module/amdgpu", {}, {"amd"}),
    ("sys/module/amdgpu", {}, set()),
    ("dev/nvidia0 dev/kfd sys/module/amdgpu", {"CUDA_VISIBLE_DEVICES": ""}, set()),
    ("dev/nvidia0 dev/kfd sys/module/amdgpu", {"ROCR_VISIBLE_DEVICES": "-1", "CUDA_VISIBLE_DEVICES": "0"}, {"nvidia"}),
    ("dev/nvidia0", {"NVIDIA_VISIBLE_DEVICES": "void"}, set()),
])  # fmt: skip
def test_gpus_are_found_by_the_files_of_their_drivers(
    inv: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    files: str,
    environ: dict[str, str],
    makers: set[str],
) -> None:
    for name in [name for name in os.environ if name.endswith("VISIBLE_DEVICES") or name.startswith("KUBERNETES")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for file in files.split():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.setattr(sys, "platform", "linux")
    assert inv.gpus(tmp_path) == makers


def test_the_first_run_installs_and_the_second_touches_nothing(checkout: Checkout) -> None:
    first = checkout.run("plan", "--stack", "dev")
    assert first.returncode == 0, first.stderr
    assert "making .venv (once)" in first.stderr
    assert "tiny 1.0 args ['plan', '--stack', 'dev']" in first.stdout

    # Neither uv nor an index is there any more: a second run needs none of them.
    second = checkout.run("plan", PATH="/nowhere", PIP_INDEX_URL="http://127.0.0.1:9/")
    assert (second.returncode, second.stderr) == (0, "")


def test_tasks_know_the_users_directory_and_the_name_that_was_called(ready: Checkout, tmp_path: Path) -> None:
    assert "\nas ./inv\n" in ready.run("list").stdout
    elsewhere = ready.run("list", cwd=tmp_path).stdout
    assert f"caller {tmp_path} in {ready.root}" in elsewhere
    assert f"\nas {ready.root}/inv\n" in elsewhere


def test_the_environment_has_the_program_as_paddock(ready: Checkout, tmp_path: Path) -> None:
    command = [str(ready.venv / "bin/paddock"), "gpu.list"]
    completed = subprocess.run(command, cwd=tmp_path, env=ready.env, capture_output=True, text=True)
    assert completed.stdout == f"paddock of {ready.root} ['gpu.list']\n", completed.stderr


def test_a_typo_is_refused_before_gigabytes_are_fetched(checkout: Checkout) -> None:
    checkout.lock("1.0", "bench")
    completed = checkout.run("smoke", "--typo")
    assert completed.returncode == 2
    assert "locks/bench.txt" not in completed.stderr
    assert "tiny 1.0" in checkout.run("smoke").stdout
    assert (checkout.venv / "installed/bench.txt").exists()


def test_completion_installs_nothing(checkout: Checkout) -> None:
    completed = checkout.run("--complete", "--", "./inv", "pl")
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")
    assert not checkout.venv.exists()


def test_a_global_invoke_hands_over(ready: Checkout) -> None:
    command = [sys.executable, "-m", "invoke", "plan", "--stack", "dev"]
    completed = subprocess.run(command, cwd=ready.root, env=ready.env, capture_output=True, text=True)
    assert "args ['plan', '--stack', 'dev']" in completed.stdout, completed.stderr


def test_packages_follow_the_lock_forward_and_back(checkout: Checkout) -> None:
    checkout.run("test")
    checkout.lock("2.0", "base", "infra", "dev")
    assert "tiny 2.0" in checkout.run("plan").stdout
    assert checkout.run("plan").stderr == ""
    checkout.lock("1.0", "base", "infra", "dev")
    assert "tiny 1.0" in checkout.run("test").stdout


def test_a_larger_set_serves_the_smaller_ones(checkout: Checkout) -> None:
    checkout.run("test")
    assert [checkout.run(task).stderr for task in ("plan", "list", "test")] == ["", "", ""]


def test_sets_add_up(checkout: Checkout) -> None:
    checkout.run("list")
    assert "making" not in checkout.run("plan").stderr
    assert [checkout.run(task).stderr for task in ("list", "plan")] == ["", ""]


@pytest.mark.parametrize("damage", ["no stamp", "no interpreter", "no folder"])
def test_a_damaged_environment_is_repaired(checkout: Checkout, damage: str) -> None:
    checkout.run("list")
    match damage:
        case "no stamp":  # what an installation leaves that was killed
            (checkout.venv / "installed/base.txt").unlink()
            (checkout.venv / "lib").rename(checkout.venv / "half")
        case "no interpreter":
            (checkout.venv / "bin/python").unlink()
        case "no folder":
            shutil.rmtree(checkout.venv)
    assert "tiny 1.0" in checkout.run("list").stdout


def test_an_environment_that_somebody_else_made_is_left_alone(checkout: Checkout) -> None:
    checkout.venv.mkdir()
    (checkout.venv / "pyvenv.cfg").write_text("")
    completed = checkout.run("list")
    assert completed.returncode == 1
    assert "was not made by ./inv" in completed.stderr
    assert (checkout.venv / "pyvenv.cfg").exists()


def test_two_first_runs_at_once_make_one_environment(checkout: Checkout) -> None:
    both = [
        subprocess.Popen(
            checkout.command("list"), env=checkout.env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=600)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("making" in text for text in outputs) == 1


def test_ctrl_c_during_the_installation_leaves_what_the_next_run_repairs(checkout: Checkout) -> None:
    slow = checkout.bin / "uv"
    real = slow.readlink()
    slow.unlink()
    slow.write_text(
        f'#!/bin/sh\n[ "$1" = venv ] || {{ touch {checkout.bin}/begun; exec sleep 60; }}\nexec {real} "$@"\n'
    )
    slow.chmod(0o755)
    process = subprocess.Popen(
        checkout.command("list"),
        env=checkout.env,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A suite in the background of a shell is told to ignore Ctrl-C, and would tell its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until((checkout.bin / "begun").exists, seconds=300)
    os.killpg(process.pid, signal.SIGINT)
    _, output = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "interrupted" in output
    assert "Traceback" not in output

    slow.unlink()
    slow.symlink_to(real)
    assert "tiny 1.0" in checkout.run("list").stdout


@INSTALLERS
def test_an_unreachable_index_is_one_message_with_a_fix(checkout: Checkout, installer: str) -> None:
    if installer == "pip":
        checkout.without_uv()
    completed = checkout.run("list", PIP_INDEX_URL="http://127.0.0.1:9/", PIP_RETRIES="1", UV_HTTP_RETRIES="0")
    assert completed.returncode == 1
    assert "The package index cannot be reached: " in completed.stderr
    assert "Connection refused" in completed.stderr
    assert "PIP_INDEX_URL" in completed.stderr
    assert "HTTPS_PROXY" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_pip_alone_is_enough(checkout: Checkout) -> None:
    checkout.without_uv()
    completed = checkout.run("list")
    assert "tiny 1.0" in completed.stdout, completed.stderr


def test_a_package_that_is_not_the_locked_one_is_refused(checkout: Checkout) -> None:
    lock = checkout.root / "locks/base.txt"
    text = lock.read_text().rstrip()
    lock.write_text(text[:-1] + ("1" if text[-1] == "0" else "0") + "\n")
    completed = checkout.run("list")
    assert completed.returncode == 1
    assert "hash" in completed.stderr.lower()


@INSTALLERS
def test_settings_of_pip_in_the_environment_lead_nowhere_else(checkout: Checkout, installer: str) -> None:
    if installer == "pip":
        checkout.without_uv()
    elsewhere = dict.fromkeys(("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT"), str(checkout.root.parent / "out"))
    completed = checkout.run("list", PIP_DRY_RUN="1", **elsewhere)
    assert "tiny 1.0" in completed.stdout, completed.stderr
    assert not (checkout.root.parent / "out").exists()


@pytest.mark.e2e
@pytest.mark.parametrize("setting", ["target", "dry-run"])
def test_a_setting_in_pip_conf_leads_nowhere_else(checkout: Checkout, setting: str) -> None:
    checkout.without_uv()
    (checkout.root.parent / "pip.conf").write_text(f"[global]\n{setting} = {checkout.root.parent / 'out'}\n")
    if setting == "dry-run":
        (checkout.root.parent / "pip.conf").write_text("[install]\ndry-run = true\n")
    completed = checkout.run("list", PIP_CONFIG_FILE=str(checkout.root.parent / "pip.conf"))
    assert "tiny 1.0" in completed.stdout, completed.stderr


@INSTALLERS
def test_packages_that_went_elsewhere_are_no_finished_installation(checkout: Checkout, installer: str) -> None:
    elsewhere, settings = checkout.root.parent / "out", checkout.root.parent / "settings"
    if installer == "pip":
        checkout.without_uv()
        settings.write_text(f"[install]\nprefix = {elsewhere}\n")
    else:
        settings.write_text(f'[pip]\ntarget = "{elsewhere}"\n')
    completed = checkout.run("list", PIP_CONFIG_FILE=str(settings), UV_CONFIG_FILE=str(settings))
    assert completed.returncode == 1
    assert "1 of its 1 packages are not there, such as tiny==1.0" in completed.stderr
    assert "uv.toml" in completed.stderr
    assert not (checkout.venv / "installed/base.txt").exists()
    assert "tiny 1.0" in checkout.run("list").stdout


def test_pythonpath_and_pythonhome_change_nothing(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text("VERSION = 'another'\n")
    settings = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": sys.base_prefix}
    for _ in ("the first run", "a later one"):
        completed = checkout.run("list", **settings)
        assert "tiny 1.0" in completed.stdout, completed.stderr


def test_a_missing_module_is_a_sentence_that_says_how_to_rebuild(root: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    (bare / "installed").mkdir()
    command = [str(bare / "bin/python"), "-P", "-c", "import runpy, sys; sys.path.insert(0, sys.argv.pop()); "]
    command[-1] += "runpy.run_module('paddock', run_name='__main__', alter_sys=True)"
    completed = subprocess.run([*command, "plan", str(root)], capture_output=True, text=True)
    assert completed.returncode == 1
    assert f"{bare} has no module pydantic" in completed.stderr
    assert f"fix: delete {bare} and run ./inv again" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_a_checkout_that_cannot_be_written_uses_the_cache(
    inv: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(inv, "ROOT", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert Path(inv.venv_path(["base"])).parent == Path("/cache/paddock")


def test_an_old_python_gets_a_sentence(
    inv: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inv, "ROOT", str(tmp_path))
    monkeypatch.setattr(sys, "version_info", (3, 8, 18))
    monkeypatch.setenv("PATH", "/nowhere")
    assert inv.main(["plan"]) == 1
    assert "Paddock needs Python 3.11 or newer; this is 3.8.18" in capsys.readouterr().err


def test_an_old_python_searches_for_a_newer_one(
    inv: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shim = tmp_path / "python3.14"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    (tmp_path / "python3.11").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert inv.newer_python()


def test_an_old_python_can_at_least_read_it(root: Path) -> None:
    for name in ("inv", "paddock/tasks/__init__.py"):
        ast.parse((root / name).read_text(), feature_version=(3, 7))


def test_every_set_and_every_lock_know_each_other(root: Path, inv: ModuleType) -> None:
    of_images = {"gateway"}  # their builds install them, and `./inv` never does
    assert set(inv.SERVED_BY) == set(lock_sets()) - of_images
    assert set(inv.sets_of_commands().values()) <= set(lock_sets())
    for name, extras in lock_sets().items():
        held = {line.split()[0] for line in (root / f"locks/{name}.txt").read_text().splitlines() if line[:1].isalnum()}
        for larger in inv.SERVED_BY.get(name, ()):
            text = (root / f"locks/{larger}.txt").read_text()
            assert held <= {line.split()[0] for line in text.splitlines()}, f"{larger} serves {name}"
        assert set(extras) <= {name}

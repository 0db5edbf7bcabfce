"""cuda-smoke itself, compiled with a stand-in for the CUDA runtime: kernels are loops over host memory there."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from shutil import which
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("cuda-smoke")]  # compiled once

MIB = 1 << 20
TESTS = ["vector_add", "memory_walking_ones", "memory_walking_zeros", "memory_address", "memory_random"]

Smoke = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="session")
def compiler() -> str:
    found = which("g++")
    if found is None:
        pytest.skip("no g++ on PATH to compile cuda-smoke with the stand-in")
    return found


@pytest.fixture(scope="session")
def program(root: Path, compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = sorted(source for source in (root / "images/cuda-builder/cuda-smoke").iterdir() if source.suffix != ".h")
    executable = tmp_path_factory.mktemp("cuda") / "cuda-smoke"
    words = [compiler, "-O1", "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    words += ["-I", str(root / "tests/support/cuda_runtime"), "-x", "c++", *map(str, sources), "-o", str(executable)]
    subprocess.run(words, check=True)
    return executable


@pytest.fixture
def smoke(program: Path) -> Smoke:
    """Run it, and return its exit status and report; faults are named without FAKE_CUDA_."""

    def run(*words: str, **faults: object) -> tuple[int, dict[str, Any]]:
        result = _run(program, *words, **faults)
        return result.returncode, json.loads(result.stdout)

    return run


def _run(program: Path, *words: str, **faults: object) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], **{f"FAKE_CUDA_{name}": str(value) for name, value in faults.items()}}
    return subprocess.run([program, *words], capture_output=True, text=True, env=environ, timeout=120, check=False)


def _tests(report: dict[str, Any], gpu: int = 0) -> dict[str, dict[str, Any]]:
    return {test["name"]: test for test in report["devices"][gpu]["tests"]}


def test_healthy_gpus_pass_every_test_with_a_stand_in_runtime(smoke: Smoke) -> None:
    code, report = smoke("--all", "--seed", "7", DEVICES=2)
    assert (code, report["ok"], report["schema"], report["toolkit"]) == (0, True, 1, "13.2")
    assert report["driver_cuda"] == "13.0"
    assert [gpu["index"] for gpu in report["devices"]] == [0, 1]
    for gpu in report["devices"]:
        assert [test["name"] for test in gpu["tests"]] == TESTS
        assert all(test["ok"] and test["seconds"] > 0 and test["bandwidth_gb_s"] > 0 for test in gpu["tests"])
    first = report["devices"][0]
    assert first["name"] == 'Stand-in "GPU" 0'
    assert first["uuid"] == "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff"
    assert (first["pci_bus_id"], first["compute_capability"], first["ecc"]) == ("0000:17:00.0", "9.0", True)
    assert _tests(report)["memory_random"]["seed"] == "7"
    assert _tests(report)["memory_walking_ones"]["passes"] == 64


def test_tests_and_gpus_are_chosen_with_a_stand_in_runtime(smoke: Smoke) -> None:
    _, queried = smoke("--query", DEVICES=3)
    assert [gpu["tests"] for gpu in queried["devices"]] == [[], [], []]
    _, single_report = smoke("--vector-add", "--device", "2", DEVICES=3)
    assert [(gpu["index"], [test["name"] for test in gpu["tests"]]) for gpu in single_report["devices"]] == [
        (2, ["vector_add"])
    ]


@pytest.mark.parametrize(
    ("size", "tested"),
    [("2M", 2 * MIB), ("50%", 4 * MIB), (None, 8 * MIB * 8 // 10)],
)
def test_as_much_memory_is_tested_as_was_asked_for(smoke: Smoke, size: str | None, tested: int) -> None:
    _, report = smoke("--memory", *(["--memory-size", size] if size else []))
    assert [test["bytes"] for test in report["devices"][0]["tests"]] == [pytest.approx(tested, abs=1000)] * 4


def test_every_pattern_detects_a_stuck_bit_with_a_stand_in_runtime(smoke: Smoke) -> None:
    code, report = smoke("--memory", STUCK=f"0:{5 * MIB + 8}:5", DEVICES=2)
    assert (code, report["ok"]) == (1, False)
    assert [gpu["ok"] for gpu in report["devices"]] == [False, True]
    for name, test in _tests(report).items():
        assert (test["ok"], test["errors"], len(test["faults"])) == (False, 1, 1), name
        fault = test["faults"][0]
        assert fault["offset"] == 5 * MIB + 8
        assert int(fault["expected"], 16) ^ int(fault["found"], 16) == 1 << 5, name


def test_a_broken_address_line_is_detected_with_a_stand_in_runtime(smoke: Smoke) -> None:
    code, report = smoke("--memory", ALIAS=f"0:{MIB}")
    assert code == 1
    tests = _tests(report)
    # Patterns that repeat every 64 words cannot see it; that is what the other two are for.
    assert [name for name, test in tests.items() if not test["ok"]] == ["memory_address", "memory_random"]
    assert tests["memory_address"]["errors"] == MIB // 8
    assert [fault["offset"] for fault in tests["memory_address"]["faults"]] == [8 * n for n in range(8)]


def test_a_wrong_sum_is_reported_with_a_stand_in_runtime(smoke: Smoke) -> None:
    code, report = smoke("--vector-add", STUCK="0:0:0")
    test = _tests(report)["vector_add"]
    assert (code, test["ok"], test["wrong"]) == (1, False, 1)
    assert "element 0" in test["error"]


def test_a_lost_gpu_ends_only_its_tests_with_stand_in_runtime(smoke: Smoke) -> None:
    code, report = smoke(SYNC_ERROR="1:214", DEVICES=2)
    assert code == 1
    assert [len(gpu["tests"]) for gpu in report["devices"]] == [len(TESTS), 1]
    assert "cudaErrorECCUncorrectable" in report["devices"][1]["tests"][0]["error"]


def test_a_failed_allocation_fails_its_test_with_a_stand_in_runtime(smoke: Smoke) -> None:
    code, report = smoke("--memory", "--memory-size", "1G")
    assert code == 1
    assert "allocating GPU memory: cudaErrorMemoryAllocation" in _tests(report)["memory_walking_ones"]["error"]


def test_a_hanging_gpu_hides_no_other_with_a_stand_in_runtime(smoke: Smoke) -> None:
    start = time.monotonic()
    code, report = smoke("--vector-add", "--timeout", "15", DEVICES=3, HANG=1, CRASH=2)
    assert time.monotonic() - start < 60
    assert (code, report["ok"]) == (1, False)
    healthy, hung, crashed = report["devices"]
    assert healthy["ok"]
    assert (hung["error"]["kind"], hung["error"]["message"]) == ("timeout", "no answer after 15 s at vector_add")
    assert (crashed["error"]["kind"], crashed["error"]["message"]) == ("crash", "ended by signal 11 at vector_add")


def test_several_unkillable_processes_cost_no_more_time_than_one(root: Path, compiler: str, tmp_path: Path) -> None:
    main = tmp_path / "main.cpp"
    main.write_text("""
        #include <csignal>
        #include <cstdio>
        #include <unistd.h>
        #include "supervise.h"
        extern "C" int kill(pid_t, int) noexcept { return 0; }
        int main() {
            const auto began = std::chrono::steady_clock::now();
            const auto hangs = [](const auto&) -> Answer { for (;;) pause(); };
            const auto ended = run_apart(std::vector<Job>(12, hangs), began + std::chrono::milliseconds(300));
            for (const auto& one : ended) if (one.end != Outcome::End::timed_out) return 1;
            std::printf("%f", std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
        }
    """)
    folder = root / "images/cuda-builder/cuda-smoke"
    executable = tmp_path / "hangs"
    subprocess.run(
        [compiler, "-std=c++17", f"-I{folder}", main, folder / "supervise.cpp", "-o", executable], check=True
    )
    result = subprocess.run([executable], capture_output=True, text=True, timeout=60, check=True)
    assert float(result.stdout) < 3, "0.8 s, and a busy machine; one after another they would take 6.3"


@pytest.mark.parametrize(("faults", "kind", "message"), [
    ({"COUNT_ERROR": 35, "DRIVER": 0, "DEVICES": 0}, "no_driver", "libcuda.so.1"),
    ({"COUNT_ERROR": 35, "DRIVER": 12040, "DEVICES": 0}, "insufficient_driver", "supports CUDA 12.4"),
    ({"COUNT_ERROR": 100, "DEVICES": 0}, "no_device", "no GPU"),
    ({"DEVICES": 0}, "no_device", "no GPU"),
    ({"COUNT_ERROR": 802, "DEVICES": 0}, "system_not_ready", "cudaErrorSystemNotReady"),
    ({"COUNT_ERROR": 999, "DEVICES": 0}, "driver_error", "cudaErrorUnknown"),
])  # fmt: skip
def test_an_unusable_machine_gives_its_reason_with_a_stand_in_runtime(
    smoke: Smoke, faults: dict[str, int], kind: str, message: str
) -> None:
    code, report = smoke(**faults)
    assert (code, report["ok"], report["devices"], report["error"]["kind"]) == (3, False, [], kind)
    assert message in report["error"]["message"]


def test_an_unsupported_gpu_is_reported_with_a_stand_in_runtime(smoke: Smoke) -> None:
    code, report = smoke("--vector-add", OPEN_ERROR="1:209", DEVICES=2)
    assert (code, report["ok"]) == (3, False)
    assert report["devices"][0]["ok"]
    assert report["devices"][1]["error"]["kind"] == "no_kernel_image"
    # A test that failed says more than that.
    code, report = smoke("--vector-add", OPEN_ERROR="1:209", STUCK="0:0:0", DEVICES=2)
    assert code == 1


@pytest.mark.parametrize(("words", "message"), [
    (["--al"], "unknown argument '--al'"),
    (["--device"], "--device needs a value"),
    (["--device", "-1"], "'-1' is not a whole number from 0"),
    (["--device", "1"], "--device 1: there are 1 GPUs here"),
    (["--memory-size", "8"], "'8' is not a size; 512M, 8G and 90% are"),
    (["--memory-size", "101%"], "'101' is not a whole number from 1 to 100"),
    (["--memory-size", "99999999G"], "is not a whole number"),
    (["--timeout", "0"], "'0' is not a whole number from 1"),
    (["--seed", "1x"], "'1x' is not a whole number"),
])  # fmt: skip
def test_a_wrong_command_line_tests_nothing(program: Path, words: list[str], message: str) -> None:
    result = _run(program, *words)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert "usage: cuda-smoke" in result.stderr


def test_an_unwritable_report_is_a_failure_with_a_stand_in_runtime(program: Path) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run([program, "--list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 1
    assert "cannot write the report" in result.stderr


DRIVER_TEXTS = {
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\nGCC version: 11.4.0\n": (
        "470.256.02"
    ),
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs@vm)\n": "580.95.05",
    "": "",
    "GCC version:": "",
}


def test_the_drivers_version_is_read_from_the_kernels_text(root: Path, compiler: str, tmp_path: Path) -> None:
    main = tmp_path / "main.cpp"
    main.write_text(
        '#include <cstdio>\n#include "driver.h"\n'
        "int main(int, char** argv) { std::puts(driver_version(argv[1]).c_str()); }\n"
    )
    folder = root / "images/cuda-builder/cuda-smoke"
    executable = tmp_path / "version"
    includes = [f"-I{root / 'tests/support/cuda_runtime'}", f"-I{folder}"]
    subprocess.run([compiler, "-std=c++17", *includes, main, folder / "driver.cpp", "-o", executable], check=True)
    for text, version in DRIVER_TEXTS.items():
        assert subprocess.run([executable, text], capture_output=True, text=True, check=True).stdout == f"{version}\n"

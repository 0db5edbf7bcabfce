"""Commands that the README and the guides tell people to run are run here, as written, or stand here with a reason."""

from __future__ import annotations

import gc
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import versions
from paddock.site.links import pages
from paddock.tasks.program import contents, main

# Not run, and why. A command that stands here must stand in a document, else this list has gone stale.
ELSEWHERE = {
    "./inv test": "it runs this",
    "./inv check": "it runs this",
    "./inv docs": "tests/site builds the site, and compares what is generated",
    "./inv init": "asks, or takes flags: tests/init/test_init.py",
    "./inv lint --fix": "it changes files",
    "./inv lock": "needs the network",
    "./inv catalog.refresh": "needs AWS",
    "./inv doctor": "needs AWS: tests/operate, on a stand-in whose calls are checked with botocore's models",
    "./inv plan --stack prod --with-doctor": "needs what the doctor read: tests/plan/test_with_doctor.py",
    "./inv cost": "needs AWS: tests/operate/test_cost.py, on a stand-in whose calls are checked with botocore's models",
    "./inv status": "needs a cluster: tests/operate/test_status.py",
    "./inv why": "needs a cluster: tests/operate/test_why.py, tests/e2e/test_why.py",
    "./inv verify": "needs a cluster: tests/operate/test_verify.py, tests/e2e/test_verify.py",
    "./inv runners.": "needs a cluster: tests/operate/test_runners.py, tests/e2e/test_rerun.py",
    "./inv runners.upgrade": "needs a cluster: tests/operate/test_upgrade.py, tests/e2e/test_operate.py",
    "./inv destroy": "needs a cluster: tests/operate/test_destroy.py, tests/e2e/test_operate.py",
    "./inv lab.": "tests/e2e/test_story.py runs these, in their order",
    "./inv images.build": "needs Docker: tests/e2e/test_runner_image.py, tests/e2e/test_cuda_builder.py",
    "./inv images.check": "its answer depends on the day: tests/images/test_images_check.py",
    "./inv bench --mode ": "its pauses take minutes: tests/bench/test_run.py, of a stand-in",
    "./inv smoke --tier 1": "its exit code tells whether there is a GPU: tests/doors/test_smoke.py",
    "./inv bench.compare": "tests/bench/baselines, on results that tests make up",
    "./inv bench.load": "needs a server: tests/bench/load/test_command.py, on a scripted one",
    "./inv slurm.configure": "needs Docker, or describes this machine: tests/slurm, tests/e2e/test_slurm_image.py",
    "./inv slurm.submit": "needs Slurm: tests/e2e/test_slurm_jobs.py",
    "./inv slurm.status": "likewise",
    "./inv slurm.cancel": "likewise",
    "./inv slurm.test": "likewise",
    "./inv ami.": "needs AWS: tests/images/ami, on recorded models and stand-ins",
    **{
        f"paddock serve.{name}": "needs Ray: tests/e2e/test_serving.py"
        for name in ("up", "join", "load", "infer", "nodes", "models", "unload", "down")
    },
    "paddock serve.plan tiny --cluster": "needs Ray: tests/e2e/test_serving_cluster.py",
    "paddock serve.plan llama-3.1-8b": "needs files of devices: tests/serve/test_plan_command.py",
    "paddock gpu.run": "needs a GPU: tests/gpu, on a simulated driver",
    "paddock gpu.render": "needs a GPU: tests/gpu/render, on recorded inventories",
    "paddock gpu.list --json > node.json": "a redirection; gpu.list is run",
    "paddock gpu.ml-env": "needs a GPU: tests/gpu/ml, on a simulated driver",
    "paddock gpu.workflow": "needs a workflow file: tests/gpu/workflow",
}
# Programs that are not ours: what their commands need.
PROGRAMS = {
    "aws": "AWS",
    "cosign": "GitHub",
    "curl": "the network",
    "docker": "Docker: tests/e2e/test_cuda_builder.py",
    "gh": "GitHub",
    "git": "the network: `.ci/run` clones the checkout itself",
    "hf": "a model's hub",
    "kubectl": "the fleet's cluster in AWS",
    "nvidia-smi": "a GPU",
    "pcluster": "AWS: tests/slurm/test_cloud.py has its schema",
    "pulumi": "AWS: the lab runs the same engine",
    "python3": "a GPU and torch",
    "sudo": "a node",
}
SHELL = {"cat", "cd", "chmod", "do", "done", "eval", "export", "for", "mkdir", "wait"}
"""Words of the shell itself, around the commands."""
EXPLAINS_BOTH_NAMES = "tasks.md"
"""The page that says what the program is called in a checkout and on a node."""
WALKED = {"getting-started.md": "tests/e2e/test_getting_started.py runs it from the first command to the last"}


def commands(root: Path) -> list[str]:
    """Return the commands of every fenced sh, bash and console block, without comments; of a console the `$` lines."""
    return sorted({command for page in pages(root) if page.name not in WALKED for command in _commands(page)})


def _commands(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for language, block in re.findall(r"```(sh|bash|console)\n(.*?)```", text, flags=re.DOTALL):
        lines = block.replace("\\\n", " ").splitlines()
        if language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in lines:
            command = re.sub(r"(^|\s+)#.*", "", line).strip()
            if command and not line.startswith(" "):
                yield command


ROOT = Path(__file__).resolve().parent.parent.parent
OURS = ("./inv ", "paddock ")
RUN = [c for c in commands(ROOT) if c.startswith(OURS) and not any(c.startswith(e) for e in ELSEWHERE)]


@pytest.mark.e2e
@pytest.mark.parametrize("command", RUN)
def test_a_documented_command_works_as_written(
    root: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(command.partition(" > ")[0])[1:]
    monkeypatch.chdir(root)
    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
    if "--against" in words:  # what it compares with was saved before
        stack = words[words.index("--stack") + 1] if "--stack" in words else "dev"
        assert main(["inv", "plan", "--stack", stack, "--json", words[words.index("--against") + 1]]) == 0
    code = main(["inv", *words])
    gc.enable()  # `plan` switches it off for its own short process
    assert code == 0, "".join(capsys.readouterr())[-2000:]


def test_every_other_command_says_what_it_needs(root: Path) -> None:
    others = [c for c in commands(root) if not c.startswith(OURS) and c not in ("./inv", "paddock")]
    unmarked = [c for c in others if c.split()[0] not in SHELL and not c.startswith(tuple(PROGRAMS))]
    assert unmarked == [], "run it here, or say in PROGRAMS what it needs"


def test_the_list_of_commands_run_elsewhere_is_not_stale(root: Path) -> None:
    documented = commands(root)
    assert [p for p in {**ELSEWHERE, **PROGRAMS} if not any(command.startswith(p) for command in documented)] == []


IN_A_CHECKOUT = re.compile(r"\./inv\b(?!\.)")
TASKS = "|".join(sorted({re.escape(name) for task in contents().entries for name in (task, task.partition(".")[0])}))
ON_A_NODE = re.compile(rf"(?<![\w/.@-])paddock (?:{TASKS})(?![\w-])|(?<!\| )`paddock`|\bbin/paddock\b")


def test_no_page_calls_the_program_by_a_name_it_does_not_have(root: Path) -> None:
    bare = re.compile(r"(?:^(?:\$ )?|(?<=`)|(?<![./\w-])(?=inv [a-z-]))inv(?=\s+[a-z-]|$)[\w. -]*", re.MULTILINE)
    assert {p.name: calls for p in pages(root) if (calls := bare.findall(p.read_text(encoding="utf-8")))} == {}


def test_each_page_uses_one_name_of_the_program(root: Path) -> None:
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages(root)}
    mixed = {name for name, text in texts.items() if IN_A_CHECKOUT.search(text) and ON_A_NODE.search(text)}
    assert mixed == {EXPLAINS_BOTH_NAMES}, "./inv in a checkout, paddock on a node; one of them on a page"


def test_the_gpu_guide_names_the_versions_of_the_code(root: Path) -> None:
    guide = (root / "docs/gpu-guide.md").read_text(encoding="utf-8")
    oldest, newest = (min(versions.CUDA_BASES)[0], max(versions.CUDA_BASES)[0])
    for version in (versions.NVIDIA_DEVICE_PLUGIN, versions.ARC, versions.DCGM_EXPORTER, f"CUDA {oldest} to {newest}"):
        assert version in guide


def test_readme_states_amounts_of_the_picture_of_a_job(root: Path) -> None:
    amounts = re.findall(r"\$\d[\d,.]*\d", (root / "README.md").read_text())
    picture = (root / "docs" / "pictures" / "path-of-a-job.svg").read_text()
    assert len(amounts) == 3
    assert [amount for amount in amounts if amount not in picture] == []

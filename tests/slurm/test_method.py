"""`method.json` is read as it is meant, or refused with the place of every mistake."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from paddock.slurm.commands.submit import Submit, submit
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.submit.method import Method, load, minutes_of, parse, schema, schema_text

SEED = {"name": "deep-learning-method", "resources": {"min_memory_mb": 8192, "cpus": 4, "gpus": 1}}


def method(**values: Any) -> Method:
    return parse(json.dumps({"name": "train", **values}), "method.json")


def refusal(**values: Any) -> str:
    with pytest.raises(SlurmInputError) as caught:
        method(**values)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_the_example_of_the_seed_runs_a_command_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "method.json"
    path.write_text(json.dumps(SEED))
    loaded, script = load(path, ["python", "train.py", "--name", "two words"])
    assert loaded.resources.min_memory_mb == 8192
    assert script == "#!/bin/sh\nexec python train.py --name 'two words'\n"
    with pytest.raises(SlurmInputError, match="no program to run"):
        load(path)


def test_text_goes_through_a_shell_and_a_script_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "method.json"
    path.write_text(json.dumps({"name": "a", "command": "echo $HOME | wc -c"}))
    assert load(path)[1] == "#!/bin/sh\necho $HOME | wc -c\n"
    path.write_text(json.dumps({"name": "a", "script": "job.sh"}))
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --nice\nhostname\n")
    assert load(path)[1] == "#!/bin/bash\n#SBATCH --nice\nhostname\n"
    (tmp_path / "job.sh").write_bytes(b"#!/bin/bash\r\nhostname\r\n")
    with pytest.raises(SlurmInputError, match="line ends of DOS"):
        load(path)
    (tmp_path / "job.sh").write_text("hostname\n")
    with pytest.raises(SlurmInputError, match="does not begin with #!"):
        load(path)
    (tmp_path / "job.sh").unlink()
    with pytest.raises(SlurmInputError, match=r"method.json: script: .*job.sh: No such file"):
        load(path)


def test_a_command_with_bytes_that_are_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "method.json").write_text(json.dumps(SEED))
    with pytest.raises(SlurmInputError, match="bytes that are not UTF-8"):
        load(tmp_path / "method.json", ["cat", "caf\udce9"])


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\n#SBATCH --nice\n\n# \u2028 comment\nenv\n",
        "#!/usr/bin/env bash\n#SBATCH --nice\nenv",
        "#!/usr/bin/env -S PYTHONUTF8=1 python3 -B\n#SBATCH --nice\nimport os\n"
        "print(*(f'{k}={v}' for k, v in os.environ.items()), sep='\\n')\n'PADDOCK_END'\n",
    ],
    ids=["sh", "bash", "python"],
)
def test_variables_reach_a_script_as_they_are_below_its_options(tmp_path: Path, script: str) -> None:
    value = 'it\'s $HOME `id` \\ "x"\nA=2'
    (tmp_path / "job").write_text(script)
    (tmp_path / "method.json").write_text(json.dumps({"name": "a", "script": "job", "environment": {"NOTE": value}}))
    text = load(tmp_path / "method.json")[1]
    assert text.index("#SBATCH --nice\n") < text.index("export NOTE")
    (tmp_path / "submitted").write_text(text)
    (tmp_path / "submitted").chmod(0o700)
    output = subprocess.run([tmp_path / "submitted"], capture_output=True, text=True, check=True).stdout
    assert f"NOTE={value}\n" in output


@pytest.mark.parametrize(("values", "place", "advice"), [
    ({"comand": "x"}, 'method.json: comand: unknown key "comand"', 'did you mean "command"?'),
    ({"resources": {"gpu": 1}}, "method.json: resources.gpu:", 'did you mean "gpus"?'),
    ({"resources": {"cpus": 0}}, "resources.cpus: 0 is too small", "at least 1"),
    ({"resources": {"cpus": 100_000}}, "resources.cpus: 100000 is too large", "at most 4096"),
    ({"resources": {"min_memory_mb": 0}}, "resources.min_memory_mb: 0 is too small", "at least 1"),
    ({"resources": {"min_memory_mb": "8192"}}, "resources.min_memory_mb: ", "write it without quotes: 8192"),
    ({"resources": {"gpus": -1}}, "resources.gpus: -1 is too small", "at least 0"),
    ({"resources": {"gpus": 1.5}}, "resources.gpus: 1.5", "a whole number"),
    ({"resources": {"gpus": 2, "shared": 1}}, "resources.shared: ", "leave gpus or shared out"),
    ({"resources": {"gpu_type": "h100"}}, "resources.gpu_type: ", 'add "gpus": 1'),
    ({"resources": {"time": "0m"}}, "resources.time: ", "1m to 366d"),
    ({"resources": {"time": "soon"}}, "resources.time: ", "1-12:00:00"),
    ({"resources": {"time": 90}}, "resources.time: ", 'write it in quotes: "90"'),
    ({"name": "a b"}, "name: ", "such as train-1"),
    ({"command": []}, "command: ", "a list of words"),
    ({"command": "x", "script": "y"}, "script: command and script", "one of them"),
    ({"array": "1-"}, "array: ", "0-99%4"),
    ({"directory": "runs"}, "directory: ", "/jobs/runs"),
    ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, "environment.CUDA_VISIBLE_DEVICES: Slurm sets", "leave"),
    ({"environment": {"SBATCH_WAIT": "1"}}, "environment.SBATCH_WAIT: Slurm sets or reads", "leave SBATCH_WAIT"),
    ({"environment": {"UID": "1"}}, "environment.UID: the shell sets", "leave UID out"),
    ({"environment": {"A": "x\r\n"}}, "environment.A: its value has the line ends of DOS", "line feeds"),
    ({"environment": {"A B": "0"}}, "environment.A B: ", "letters, digits"),
])  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_what_to_write(values: dict[str, Any], place: str, advice: str) -> None:
    message = refusal(**values)
    assert place in message
    assert advice in message
    assert len(message.splitlines()) <= 3


@pytest.mark.parametrize(("text", "message"), [
    ('{"name": "a",\n}', "method.json:2: no JSON"),
    ('{"name": "a", "name": "b"}', 'the key "name" is there twice'),
    ("[]", "expected: an object"),
    ("{}", "name is missing"),
    ('{"name": "a", "version": %s}' % ("1" * 5000), "a number has too many digits"),
    ("[" * 100_000, "nested too deep"),
    (r'{"name": "a", "command": "echo \ud83d"}', "half of a character"),
])  # fmt: skip
def test_a_file_that_is_no_method_is_refused(text: str, message: str) -> None:
    with pytest.raises(SlurmInputError, match=message):
        parse(text, "method.json")


@pytest.mark.parametrize(
    ("text", "minutes"), [("30m", 30), ("2h", 120), ("1d", 1440), ("90", 90), ("1-12:00:00", 2160), ("00:00:30", 1)]
)
def test_a_time_limit_is_whole_minutes(text: str, minutes: int) -> None:
    assert minutes_of(text) == minutes
    assert method(resources={"time": text}).resources.time == text


def test_the_published_schema_is_the_models(root: Path) -> None:
    assert (root / "docs/method.schema.json").read_text(encoding="utf-8") == schema_text(), "run: ./inv docs.generate"
    jsonschema.validate({"$schema": "method.schema.json", **SEED, "resources": {"shared": True}}, schema())


def test_the_published_schema_takes_the_example_and_refuses_unknown_keys() -> None:
    jsonschema.validate(SEED | {"command": ["a"]}, schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(SEED | {"resources": {"gpu": 1}}, schema())


def test_a_mistake_in_the_file_is_said_before_slurm_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmInputError, match="cannot read"):
        submit(Submit(method=tmp_path / "absent.json"))

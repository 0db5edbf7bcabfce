"""`method.json`: a job's command and the resources that it needs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from paddock.duration import Minutes, NoDuration
from paddock.errors import Problem
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.submit.script import batch_script
from paddock.validation import problems

_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
_MIB_MOST = 64 * 1024 * 1024
_CPUS_MOST = 4096
_GPUS_MOST = 256
_MINUTES_MOST = 366 * 24 * 60
_SLURM_TIME = re.compile(r"(?:(\d{1,3})-)?(\d{1,4}):([0-5]\d):([0-5]\d)", re.ASCII)
_ARRAY = re.compile(r"\d{1,7}(-\d{1,7}(:\d{1,7})?)?(,\d{1,7}(-\d{1,7}(:\d{1,7})?)?)*(%\d{1,7})?", re.ASCII)
_OF_SLURM = re.compile(r"(?:SLURM|SBATCH)_\w+|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL")
_OF_THE_SHELL = re.compile(r"BASHOPTS|SHELLOPTS|BASH_VERSINFO|E?UID|PPID|_")


def _text(message: str, expected: str, fix: str = "") -> PydanticCustomError:
    return PydanticCustomError("text", "{message}", {"message": message, "expected": expected, "fix": fix})


def _mistake(message: str, key: str, expected: str, fix: str = "") -> PydanticCustomError:
    context = {"message": message, "at": (key,), "expected": expected, "fix": fix}
    return PydanticCustomError("mistake", "{message}", context)


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", text):
        raise _text("not a name for a job", "up to 64 letters, digits, dashes, dots and underscores, such as train-1")
    return text


def _minutes(text: str) -> str:
    minutes_of(text)
    return text


def minutes_of(text: str) -> int:
    """Return a time limit in whole minutes, rounded up as Slurm does."""
    match = _SLURM_TIME.fullmatch(text.strip())
    try:
        if match:
            days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
            length = (days * 24 + hours) * 60 + minutes + seconds / 60
        else:
            length = float(Minutes(text))
    except NoDuration:
        raise _text("not a duration", "30m, 2h or 1d, or as Slurm writes it: 1-12:00:00") from None
    if not 0 < length <= _MINUTES_MOST:
        raise _text("not a time that a job could take", "1m to 366d")
    return -int(-length // 1)


def _words(value: Any) -> Any:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value
    if isinstance(value, list) and value and all(isinstance(word, str) and "\0" not in word for word in value):
        return value
    raise _text("no command", 'text for a shell, or a list of words: ["python", "train.py"]')


def _array(text: str) -> str:
    if not _ARRAY.fullmatch(text):
        raise _text("not an array of tasks", "0-9, 1,3,5 or 0-99%4, where %4 lets four run at once")
    return text


def _variables(values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or "\0" in value:
            raise _mistake(
                f"{name!r} is not a variable name", name, "letters, digits and underscores, such as OMP_NUM_THREADS"
            )
        if _OF_SLURM.fullmatch(name):
            raise _mistake("Slurm sets or reads this variable", name, "other variables", f"leave {name} out")
        if _OF_THE_SHELL.fullmatch(name):
            raise _mistake("the shell sets this variable", name, "other variables", f"leave {name} out")
        if "\r\n" in value:
            raise _mistake("its value has the line ends of DOS, which Slurm refuses", name, "line feeds alone")
    return values


def _folder(text: str) -> str:
    if not text.startswith("/") or "\0" in text:
        raise _text("not a folder on a node", "a path from the root, such as /jobs/runs")
    return text


def _shards(value: Any) -> Any:
    return 1 if value is True else None if value is False else value


class Resources(BaseModel):
    """Resources of one job, all on one node."""

    model_config = _STRICT

    min_memory_mb: int | None = Field(
        None, ge=1, le=_MIB_MOST, description="Memory in MiB; by default the node's memory per CPU, times cpus."
    )
    cpus: int = Field(1, ge=1, le=_CPUS_MOST, description="CPUs.")
    gpus: int = Field(0, ge=0, le=_GPUS_MOST, description="GPUs that the job has to itself.")
    gpu_type: str | None = Field(
        None, min_length=1, max_length=64, description="Type of GPU, as slurm.status shows it."
    )
    gpu_memory_mb: int | None = Field(None, ge=1, le=_MIB_MOST, description="Least memory in MiB of each GPU.")
    time: Annotated[str, AfterValidator(_minutes)] | None = Field(
        None, description="Longest run, such as 30m, 2h or 1-12:00:00; by default the partition's."
    )
    shared: Annotated[
        Annotated[int, Field(ge=1, le=1024)] | None,
        BeforeValidator(_shards),
        WithJsonSchema({"type": ["integer", "boolean", "null"], "minimum": 1, "maximum": 1024}),
    ] = Field(None, description="Shards of one GPU, which other jobs share, in place of gpus. true is one shard.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.shared and self.gpus > 1:
            message = "shared takes part of one GPU, and gpus asks for several"
            raise _mistake(message, "shared", "one of them", "leave gpus or shared out")
        for key in ("gpu_type", "gpu_memory_mb"):
            if getattr(self, key) is not None and not self.gpus and not self.shared:
                message = f"{key} says which GPU, and no GPU is asked for"
                raise _mistake(message, key, "gpus or shared with it", 'add "gpus": 1')
        return self


class Method(BaseModel):
    """Method: its command, and what a job of it needs."""

    model_config = _STRICT

    json_schema: str = Field("", alias="$schema", description="Address of this schema, for editors.")
    name: Annotated[str, AfterValidator(_name)] = Field(description="Name of its jobs and logs.")
    description: str = Field("", max_length=4096, description="Text for people.")
    version: str = Field("", max_length=64, description="Version for people.")
    command: Annotated[str | list[str], BeforeValidator(_words)] | None = Field(
        None, description="Text for a shell, or a list of words. slurm.submit takes one after -- as well."
    )
    script: str | None = Field(
        None, min_length=1, max_length=4096, description="Batch script in place of a command, next to method.json."
    )
    directory: Annotated[str, AfterValidator(_folder)] | None = Field(
        None, min_length=1, max_length=4096, description="Folder on the node where the job runs."
    )
    environment: Annotated[dict[str, str], AfterValidator(_variables)] = Field(
        {}, description="Variables of its environment."
    )
    array: Annotated[str, AfterValidator(_array)] | None = Field(
        None, description="Tasks of an array: 0-9, or 0-99%4 for four at once. SLURM_ARRAY_TASK_ID tells them apart."
    )
    resources: Resources = Field(Resources(), description="Resources of a job, or of each task of the array.")

    @model_validator(mode="after")
    def _single_program(self) -> Self:
        if self.command is not None and self.script is not None:
            raise _mistake("command and script are two programs", "script", "one of them", "leave one of them out")
        return self


def load(path: Path, command: Sequence[str] = ()) -> tuple[Method, str]:
    """Return the method of a file and the batch script of its job. Raises SlurmInputError.

    `command` takes the place of its own.
    """
    method = parse(_read(path), str(path))
    script = batch_script(_script(path, method, command), method.environment)
    if not _whole(script):
        raise SlurmInputError(
            "the command has bytes that are not UTF-8\n    expected: text, which Slurm keeps as it is"
        )
    return method, script


def parse(text: str, file: str) -> Method:
    """Return the method that JSON describes. Raises SlurmInputError with every problem."""

    def wrong(message: str, expected: str, fix: str = "", line: int = 0) -> SlurmInputError:
        return SlurmInputError(str(Problem((), message, expected, fix, file, line)))

    form = "an object with name, command and resources"
    try:
        value = json.loads(text, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        raise wrong(f"no JSON: {error.msg}", form, line=error.lineno) from None
    except _Repeated as error:
        raise wrong(f'the key "{error}" is there twice', "each key once", "remove one of them") from None
    except ValueError:
        raise wrong("a number has too many digits", "numbers of at most 15 digits") from None
    except RecursionError:
        raise wrong("lists or objects are nested too deep", form) from None
    if not _whole(json.dumps(value, ensure_ascii=False)):
        problem = "a text has half of a character, from \\ud800 to \\udfff"
        raise wrong(problem, "both halves, or the character")
    try:
        return Method.model_validate(value)
    except ValidationError as error:
        mistakes = problems(error.errors(include_url=False), Method, json=True, examples=_EXAMPLES)
        raise SlurmInputError("\n".join(str(replace(mistake, file=file)) for mistake in mistakes)) from None


_EXAMPLES = {"name": '"name": "train"'}


def _whole(text: str) -> bool:
    """Return False where a text has no form in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Repeated(ValueError):
    """A key that an object has twice, of which Python would keep the last."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _Repeated(key)
        result[key] = value
    return result


def _read(path: Path, name: str = "") -> str:
    try:
        return path.read_bytes().decode()  # as it is, with its line ends
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise SlurmInputError(
            f"cannot read {name}{path}: {reason}\n    expected: {'a batch script' if name else 'a method.json'}"
        ) from None


def _script(path: Path, method: Method, command: Sequence[str]) -> str:
    """Return the batch script. Raises SlurmInputError."""
    if command or method.command is not None:
        import shlex

        chosen = list(command) or method.command
        return f"#!/bin/sh\n{chosen}\n" if isinstance(chosen, str) else f"#!/bin/sh\nexec {shlex.join(chosen or [])}\n"
    if method.script is None:
        raise SlurmInputError(
            str(Problem((), "there is no program to run", "command or script, or a command after --",
                        f"slurm.submit {path} -- python train.py", str(path)))
        )  # fmt: skip
    text = _read(path.parent / method.script, f"{path}: script: ")
    if not text.startswith("#!"):
        raise _refused(path, f"{method.script} does not begin with #!", "a first line such as #!/bin/bash")
    if "\r\n" in text:
        fix = f"sed -i 's/\\r$//' {method.script}"
        raise _refused(path, f"{method.script} has the line ends of DOS, which Slurm refuses", "line feeds alone", fix)
    return text


def _refused(path: Path, message: str, expected: str, fix: str = "") -> SlurmInputError:
    return SlurmInputError(str(Problem(("script",), message, expected, fix, str(path))))


def schema() -> dict[str, Any]:
    """Return the JSON Schema of `method.json`."""
    from pydantic.json_schema import GenerateJsonSchema  # no job needs it

    schema = {"$schema": GenerateJsonSchema.schema_dialect, **Method.model_json_schema()}
    return {**schema, "title": "A job of Slurm", "description": "What `slurm.submit` reads."}


def schema_text() -> str:
    """Return the contents of `docs/method.schema.json`."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"

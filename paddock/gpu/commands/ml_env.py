"""`gpu.ml-env`: lease GPUs for a framework, and print or start an environment that this driver runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.gpu.commands.criteria import LeaseTerms
from paddock.gpu.commands.inputs import read_object
from paddock.gpu.report import DocumentReport


@dataclass(frozen=True, kw_only=True)
class MlEnv(LeaseTerms):
    """Parameters of `gpu.ml-env`."""

    framework: Literal["pytorch", "tensorflow", "jax", "none"] = parameter(
        "none", "what has to see the GPUs: pytorch, tensorflow, jax or none", required=True
    )
    cuda: str | None = parameter(None, "this CUDA version (12.8); by default the newest that runs well here")
    target: Literal["docker", "kubernetes", "venv"] = parameter("docker", "docker, kubernetes or venv")
    image: str | None = parameter(None, "an image of your own with its tag, instead of the catalogue's choice")
    path: Path | None = parameter(None, "with --target venv: the folder to make", only="flags")
    start: bool = parameter(False, "start it, and check from inside whether it sees just its GPUs", only="flags")
    config: Path | None = parameter(None, "a JSON file of an MLEnvironmentConfig; flags take precedence", only="flags")


@dataclass(frozen=True, kw_only=True)
class MlEnvironment(DocumentReport):
    """The lease, and what starts the environment on its GPUs."""

    to_start: bool

    @property
    def exit_code(self) -> int:
        return int(self.to_start and not self.found["started"])

    def text(self) -> Iterator[str]:
        lease = f", lease {self.found['lease']['id']}" if self.found["lease"] else ""
        yield f"# {', '.join(self.found['gpus'])}{lease}"
        if self.found["seen"]:
            yield f"# started; {self.found['seen']['why']}"
        yield from (shlex.join(words) for words in self.found["commands"])
        yield from self.found["exports"].splitlines()
        if self.found["target"] == "kubernetes":
            yield "\n---\n".join(file["text"].strip() for file in self.found["files"])

    def notes(self) -> list[str]:
        notes: list[str] = self.found["notes"]
        return notes


@command()
def ml_env(parameters: MlEnv) -> MlEnvironment:
    """Lease GPUs and write an environment, or start it. Raises NoGpu, GpuError and GpuInputError."""
    from paddock.gpu.leases.request import Request
    from paddock.gpu.ml import environment as ml

    config = read_object(parameters.config, "an MLEnvironmentConfig") if parameters.config else {}
    arguments = ml.from_dict(config)
    request = asdict(arguments.pop("request")) if "request" in arguments else {}
    names = ("framework", "cuda", "target", "image", "path", "start")
    arguments |= {name: value for name, value in parameters.values().items() if name in names}
    arguments["request"] = Request.from_dict({**request, **parameters.criteria()})
    return MlEnvironment(found=ml.environment(**arguments, **parameters.terms()), to_start=parameters.start)

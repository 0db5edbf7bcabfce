"""Runner images and GPU machine images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, cast

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.build.options import BuildOptions
from paddock.duration import Minutes
from paddock.tasks.common import ROOT, task
from paddock.terminal import JSON_HELP, JsonOutput, caller_path, optional_path

_JSON = {"json": JSON_HELP}
_STACK = {"stack": "the stack: Pulumi.<stack>.yaml"}
_FLAGS = {"build_args": "build_arg"}
"""Flags that are not named as their option."""
_FOLLOWED = Minutes("3h")


def _build_task(
    name: str, without: tuple[str, ...] = (), help: dict[str, str] | None = None, **settings: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a task of a function: its own parameters as flags, then those of the build options and `--json`.

    The function takes the last two as `options` and `json`: typed, so that what it hands on is checked.
    """
    options = {_FLAGS.get(field.name, field.name): field for field in fields(BuildOptions) if field.name not in without}
    texts = {flag.rstrip("_").replace("_", "-"): field.metadata["help"] for flag, field in options.items()} | _JSON
    flags = [Parameter(flag, Parameter.KEYWORD_ONLY, default=field.default) for flag, field in options.items()]
    flags.append(Parameter("json", Parameter.KEYWORD_ONLY, default=None))

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, json: str | None, **kwargs: Any) -> None:
            chosen = BuildOptions(**{field.name: kwargs.pop(flag) for flag, field in options.items()})
            body(*args, **kwargs, options=chosen, json=JsonOutput.parse(json))

        own = list(signature(body).parameters.values())[:-2]
        run.__doc__ = body.__doc__
        vars(run)["__signature__"] = Signature([*own, *flags])  # which Invoke reads
        make: Callable[..., Any] = task(name=name, iterable=["build_arg"], help=texts | (help or {}), **settings)
        return cast("Callable[..., None]", make(run))

    return decorate


@_build_task("build")
def runner_build(c: Context, options: BuildOptions, json: JsonOutput) -> None:
    """Build and try the CUDA runner image unless this content was built before; push it and pin its digest if asked."""
    from paddock.build.cli import build

    build.build_runner(ROOT, options, json=json)


@_build_task(
    "build",
    without=("pin",),
    positional=["name"],
    help={
        "name": "a folder of images/",
        "run": "cuda-builder only: compile, and leave the programs and their manifest in cuda-build/",
        "native": "cuda-builder only: compile with this machine's CUDA toolkit, without Docker",
        "architectures": "with --run or --native: only these, with commas between, such as 75,90",
        "output": "with --run or --native: the folder to leave them in",
    },
)
def images_build(
    c: Context,
    name: str,
    run: bool = False,
    native: bool = False,
    architectures: str = "",
    output: str | None = None,
    *,
    options: BuildOptions,
    json: JsonOutput,
) -> None:
    """Build the image of a folder of images/ unless this content was built before."""
    folder = optional_path("output", output)
    if run or native:
        _run_cuda_builder(name, architectures, folder, options, json, native=native)
        return
    for flag, value in (("architectures", architectures), ("output", output)):
        if value:
            raise Exit(
                f"--{flag} says what the image's run does\n    fix: add --run or --native, or leave --{flag} out",
                code=2,
            )
    from paddock.build.cli import build

    build.build_image(ROOT, name, options, json=json)


def _run_cuda_builder(
    name: str, architectures: str, output: Path | None, options: BuildOptions, json: JsonOutput, *, native: bool
) -> None:
    way = "--native" if native else "--run"
    if name != "cuda-builder":
        raise Exit(
            f"{way} with {name}: it leaves nothing on the host\n    expected: images.build cuda-builder {way}"
            f"\n    fix: leave {way} out",
            code=2,
        )
    of_docker = ("base", "cuda", "ubuntu", "platform", "no_cache") if native else ()
    for option in ("push", "registry", "stack", "build_args", "with_", *of_docker):
        if getattr(options, option):
            flag = _FLAGS.get(option, option).rstrip("_").replace("_", "-")
            raise Exit(f"--{flag} and {way} exclude each other\n    fix: leave one of them out", code=2)
    from paddock.build.cli import cuda

    chosen = [part.strip() for part in architectures.split(",") if part.strip()]
    if native:
        cuda.run_native(ROOT, architectures=chosen, output=output, json=json)
    else:
        cuda.run(ROOT, options, architectures=chosen, output=output, json=json)


@_build_task("push", without=("push", "no_cache"))
def runner_push(c: Context, options: BuildOptions, json: JsonOutput) -> None:
    """Push the runner image that was built of what is here now."""
    from paddock.build.cli import build

    build.push_runner(ROOT, options, json=json)


@task(name="list", help=_STACK | _JSON)
def images_list(c: Context, stack: str = "dev", json: str | None = None) -> None:
    """List the images a stack names, and those built here."""
    from paddock.build.cli import images

    images.list_images(ROOT, stack, json=JsonOutput.parse(json))


@task(name="check", help=_STACK | _JSON)
def images_check(c: Context, stack: str = "dev", json: str | None = None) -> None:
    """Judge the images of a stack's runners: age, pin, and whether their CUDA fits the nodes; exit code 1 if not."""
    from paddock.build.cli import images

    images.check(ROOT, stack, json=JsonOutput.parse(json))


@task(
    name="size",
    positional=["image"],
    help={"image": "any reference, or a folder of images/: the newest that was built of it"} | _JSON,
)
def images_size(c: Context, image: str = "runner-gpu", json: str | None = None) -> None:
    """Show the layers of an image, largest first."""
    from paddock.build.cli import images

    images.show_size(image, json=JsonOutput.parse(json))


@task(
    name="build",
    help=_STACK
    | {
        "execution": "follow this build, or `latest`, instead of starting one",
        "no-wait": "start it, say how to follow it, and end",
        "cancel": "cancel the build that is in progress",
        "new": "start one beside a build in progress",
        "timeout-minutes": "how long to follow it; the build goes on",
    }
    | _JSON,
)
def ami_build(
    c: Context,
    stack: str = "dev",
    execution: str = "",
    no_wait: bool = False,
    cancel: bool = False,
    new: bool = False,
    timeout_minutes: Minutes = _FOLLOWED,
    json: str | None = None,
) -> None:
    """Build a GPU machine image with the stack's pipeline, and follow it: it can be left and taken up again."""
    from paddock.build.cli import ami

    ami.build(
        ROOT,
        stack,
        execution=execution,
        wait=not no_wait,
        cancel=cancel,
        new=new,
        timeout_minutes=timeout_minutes,
        json=JsonOutput.parse(json),
    )


@task(name="list", help=_STACK | _JSON)
def ami_list(c: Context, stack: str = "dev", json: str | None = None) -> None:
    """List the fleet's machine images, and what uses them."""
    from paddock.build.cli import ami

    ami.list_images(ROOT, stack, json=JsonOutput.parse(json))


@task(
    name="promote",
    positional=["id"],
    iterable=["pool"],
    help={"id": "ami-...", "pool": "only this pool; may be given again. By default all but Bottlerocket's"}
    | _STACK
    | _JSON,
)
def ami_promote(
    c: Context, id: str, stack: str = "dev", pool: list[str] | None = None, json: str | None = None
) -> None:
    """Pin a machine image in the stack file, if it fits every pool and runner image that would meet it."""
    from paddock.build.cli import ami

    ami.promote_image(ROOT, stack, id, pools=pool or (), json=JsonOutput.parse(json))


@task(
    name="prune",
    iterable=["image"],
    help={
        "keep": "how many of the newest stay, used or not",
        "image": "look at this one only, and remove it even if another account may start it; may be given again",
        "yes": "do it",
    }
    | _STACK
    | _JSON,
)
def ami_prune(
    c: Context,
    stack: str = "dev",
    keep: int = 2,
    image: list[str] | None = None,
    yes: bool = False,
    json: str | None = None,
) -> None:
    """Show which machine images and snapshots nothing uses; --yes removes them."""
    from paddock.build.cli import ami

    if not ami.prune_images(ROOT, stack, keep=keep, named=image or (), yes=yes, json=JsonOutput.parse(json)):
        raise Exit(code=1)


@task(help={"output": "the folder for it"} | _JSON)
def wheel(c: Context, output: str = "dist", json: str | None = None) -> None:
    """Build the wheel that a node installs: the GPU tasks, smoke test, benchmark and catalogue, as in runner images."""
    from paddock.build.cli import wheel

    wheel.build(ROOT, caller_path(output), json=JsonOutput.parse(json))


@_build_task(
    "build",
    without=("pin", "with_", "cuda", "ubuntu", "stack"),
    help={"gpu-type": "nvidia, amd or none: the base, and Slurm's plugin for it where the distribution has one"},
)
def slurm_build(c: Context, gpu_type: str = "none", *, options: BuildOptions, json: JsonOutput) -> None:
    """Build the image of a Slurm node unless this content was built before; push it if asked."""
    from paddock.build.cli import build

    build.build_slurm(ROOT, gpu_type, options, json=json)

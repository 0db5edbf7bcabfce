"""Runner images and GPU machine images."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.tasks.common import ROOT, optional_path, task

_JSON = {"json": "print JSON, and nothing else"}
_STACK = {"stack": "the stack: Pulumi.<stack>.yaml"}
_REGISTRY = {
    "registry": "push to HOST[/PREFIX]; by default the stack's ECR, in the account of the AWS credentials",
    "stack": "whose registry and CUDA are the defaults",
}
_PIN = {"pin": "the stack whose runners shall use it: pushes, then writes its digest there"}
_BASE = {
    "cuda": "the CUDA toolkit, such as 12.8",
    "ubuntu": "the Ubuntu below it: 22.04 or 24.04",
    "base": "any image of the Debian family, in place of NVIDIA's with --cuda on --ubuntu",
    "platform": "linux/amd64 or linux/arm64; by default that of the stack's nodes, without a stack this machine's",
}
_BUILD = _BASE | {
    "push": "push it, unless the registry has it",
    "no-cache": "build every step again",
    "progress": "auto, plain or quiet",
    "build-arg": "NAME=VALUE for an argument of the Dockerfile; may be given again",
}


@task(name="build-runner", iterable=["build_arg"], help=_BUILD | _REGISTRY | _PIN | _JSON)
def build_runner(
    c: Context,
    cuda: str = "",
    ubuntu: str = "",
    base: str = "",
    platform: str = "",
    push: bool = False,
    registry: str = "",
    stack: str = "",
    pin: str = "",
    no_cache: bool = False,
    progress: str = "auto",
    build_arg: list[str] | None = None,
    json: bool = False,
) -> None:
    """Build and try the CUDA runner image unless this content was built before; push it and pin its digest if asked."""
    from paddock.build.cli import build as command

    command.build_runner(
        ROOT,
        cuda=cuda,
        ubuntu=ubuntu,
        base=base,
        platform=platform or None,
        push=push,
        registry=registry,
        stack=stack,
        pin=pin,
        no_cache=no_cache,
        progress=progress,
        build_args=build_arg or (),
        as_json=json,
    )


@task(
    name="build-image",
    positional=["name"],
    iterable=["build_arg"],
    help={
        "name": "a folder of images/",
        "run": "cuda-builder only: compile, and leave the programs and their manifest in cuda-build/",
        "architectures": "with --run: only these, with commas between, such as 75,90",
        "output": "with --run: the folder to leave them in",
    }
    | _BUILD
    | _REGISTRY
    | _JSON,
)
def build_image(
    c: Context,
    name: str,
    run: bool = False,
    architectures: str = "",
    output: str | None = None,
    cuda: str = "",
    ubuntu: str = "",
    base: str = "",
    platform: str = "",
    push: bool = False,
    registry: str = "",
    stack: str = "",
    no_cache: bool = False,
    progress: str = "auto",
    build_arg: list[str] | None = None,
    json: bool = False,
) -> None:
    """Build the image of a folder of images/ unless this content was built before."""
    folder = optional_path("output", output)
    if run:
        _only_cuda_builder(name, push=push, registry=registry, stack=stack, build_arg=build_arg)
        from paddock.build.cli import cuda as command_cuda

        command_cuda.run(
            ROOT,
            cuda=cuda or None,
            ubuntu=ubuntu or None,
            base=base or None,
            platform=platform or None,
            architectures=[each.strip() for each in architectures.split(",") if each.strip()],
            output=folder,
            no_cache=no_cache,
            progress=progress,
            as_json=json,
        )
        return
    for flag, given in (("architectures", architectures), ("output", output)):
        if given:
            raise Exit(f"--{flag} says what the image's run does\n    fix: add --run, or leave --{flag} out", code=2)
    from paddock.build.cli import build as command

    command.build_image(
        ROOT,
        name,
        cuda=cuda,
        ubuntu=ubuntu,
        base=base,
        platform=platform or None,
        push=push,
        registry=registry,
        stack=stack,
        no_cache=no_cache,
        progress=progress,
        build_args=build_arg or (),
        as_json=json,
    )


def _only_cuda_builder(name: str, **others: object) -> None:
    if name != "cuda-builder":
        raise Exit(
            f"--run with {name}: it leaves nothing on the host\n    expected: build-image cuda-builder --run"
            "\n    fix: leave --run out",
            code=2,
        )
    for flag, given in others.items():
        if given:
            flag = flag.replace("_", "-")
            raise Exit(f"--{flag} and --run exclude each other\n    fix: leave one of them out", code=2)


@task(name="push-runner", iterable=["build_arg"], help=_BASE | {"build-arg": _BUILD["build-arg"]} | _REGISTRY | _PIN)
def push_runner(
    c: Context,
    cuda: str = "",
    ubuntu: str = "",
    base: str = "",
    platform: str = "",
    registry: str = "",
    stack: str = "",
    pin: str = "",
    progress: str = "auto",
    build_arg: list[str] | None = None,
    json: bool = False,
) -> None:
    """Push the runner image that was built of what is here now."""
    from paddock.build.cli import build as command

    command.push_runner(
        ROOT,
        cuda=cuda,
        ubuntu=ubuntu,
        base=base,
        platform=platform or None,
        registry=registry,
        stack=stack,
        pin=pin,
        progress=progress,
        build_args=build_arg or (),
        as_json=json,
    )


@task(name="list", help=_STACK | _JSON)
def images_list(c: Context, stack: str = "dev", json: bool = False) -> None:
    """List the images a stack names, and those built here."""
    from paddock.build.cli import images

    images.list_images(ROOT, stack, as_json=json)


@task(name="check", help=_STACK | _JSON)
def images_check(c: Context, stack: str = "dev", json: bool = False) -> None:
    """Judge the images of a stack's runners: age, pin, and whether their CUDA fits the nodes; exit code 1 if not."""
    from paddock.build.cli import images

    images.check(ROOT, stack, as_json=json)


@task(
    name="size",
    positional=["image"],
    help={"image": "any reference, or a folder of images/: the newest that was built of it"} | _JSON,
)
def images_size(c: Context, image: str = "runner-gpu", json: bool = False) -> None:
    """Show the layers of an image, largest first."""
    from paddock.build.cli import images

    images.show_size(image, as_json=json)


@task(
    name="build-ami",
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
def build_ami(
    c: Context,
    stack: str = "dev",
    execution: str = "",
    no_wait: bool = False,
    cancel: bool = False,
    new: bool = False,
    timeout_minutes: float = 180.0,
    json: bool = False,
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
        as_json=json,
    )


@task(name="list", help=_STACK | _JSON)
def ami_list(c: Context, stack: str = "dev", json: bool = False) -> None:
    """List the fleet's machine images, and what uses them."""
    from paddock.build.cli import ami

    ami.list_images(ROOT, stack, as_json=json)


@task(
    name="promote",
    positional=["id"],
    iterable=["pool"],
    help={"id": "ami-...", "pool": "only this pool; may be given again. By default all but Bottlerocket's"}
    | _STACK
    | _JSON,
)
def ami_promote(c: Context, id: str, stack: str = "dev", pool: list[str] | None = None, json: bool = False) -> None:
    """Pin a machine image in the stack file, if it fits every pool and runner image that would meet it."""
    from paddock.build.cli import ami

    ami.promote_image(ROOT, stack, id, pools=pool or (), as_json=json)


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
    json: bool = False,
) -> None:
    """Show which machine images and snapshots nothing uses; --yes removes them."""
    from paddock.build.cli import ami

    if not ami.prune_images(ROOT, stack, keep=keep, named=image or (), yes=yes, as_json=json):
        raise Exit(code=1)

"""The GPUs of this machine, or of a saved inventory."""

from __future__ import annotations

import sys

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.tasks.common import caller_path, optional_path, task

_FROM = {"from": "a saved inventory (gpu.list --json) instead of this machine"}
_JSON = {"json": "print JSON, and nothing else"}
_WANTED = {
    "gpus": "how many",
    "min-memory": "GiB of free memory of each, at least",
    "max-utilisation": "per cent in use, at most",
    "prefer": "models to take first, with commas between: H100,A100",
    "exclude": "models never to take",
    "max-power": "watt that one may draw, at most",
    "workload": "what for: training, inference, build or graphics",
    "share": "this part of each one's memory, beside others (0.5); by default the GPU alone",
    "near": "how near each other: nvlink or pcie-switch",
    "uuids": "only these, or those whose UUIDs start so",
    "mig": "a MIG part of this profile: 1g.10gb",
}


@task(name="list", help=_FROM | _JSON)
def gpu_list(c: Context, from_: str | None = None, json: bool = False) -> None:
    """List this machine's GPUs, usable or not."""
    from paddock.gpu.cli import inventory

    inventory.list_gpus(optional_path("from", from_), as_json=json)


@task(name="info", help={"gpu": "this one: an index, or how its UUID starts"} | _FROM | _JSON)
def gpu_info(c: Context, gpu: str = "", from_: str | None = None, json: bool = False) -> None:
    """Show all that is known of each GPU."""
    from paddock.gpu.cli import inventory

    inventory.info(gpu, optional_path("from", from_), as_json=json)


@task(name="memory-info", help=_FROM | _JSON)
def gpu_memory_info(c: Context, from_: str | None = None, json: bool = False) -> None:
    """Show the memory of each GPU and MIG part."""
    from paddock.gpu.cli import inventory

    inventory.memory_info(optional_path("from", from_), as_json=json)


@task(name="processes", help=_FROM | _JSON)
def gpu_processes(c: Context, from_: str | None = None, json: bool = False) -> None:
    """Show who is on which GPU."""
    from paddock.gpu.cli import inventory

    inventory.processes(optional_path("from", from_), as_json=json)


@task(name="topology", help=_FROM | _JSON)
def gpu_topology(c: Context, from_: str | None = None, json: bool = False) -> None:
    """Show how the GPUs reach each other: the matrix and a picture."""
    from paddock.gpu.cli import inventory

    inventory.topology(optional_path("from", from_), as_json=json)


@task(name="cuda-info", help={"toolkit": "judge this CUDA version instead of the installed one"} | _FROM | _JSON)
def gpu_cuda_info(c: Context, toolkit: str = "", from_: str | None = None, json: bool = False) -> None:
    """Show driver, CUDA toolkit, and whether they and the GPUs go together."""
    from paddock.gpu.cli import operations

    operations.cuda_info(toolkit, optional_path("from", from_), as_json=json)


@task(
    name="health",
    help={
        "expect": "how many GPUs there should be",
        "instance": "the EC2 instance type, which says how many and which; imds asks the machine",
        "idle": "nothing should be running on them",
        "since-hours": "how far back errors in the kernel's log count; by default to the machine's start",
    }
    | _FROM
    | _JSON,
)
def gpu_health(
    c: Context,
    expect: int = 0,
    instance: str = "",
    idle: bool = False,
    since_hours: float = 0.0,
    from_: str | None = None,
    json: bool = False,
) -> None:
    """Judge this machine's GPUs: exit code 0 healthy, 1 degraded, 2 unhealthy or unknown."""
    from paddock.gpu.cli import operations

    source = optional_path("from", from_)
    code = operations.health(source, expect=expect, instance=instance, idle=idle, since_hours=since_hours, as_json=json)
    if code:
        raise Exit(code=code)


@task(
    name="monitor",
    help={
        "interval": "seconds between samples",
        "duration": "seconds after which it ends; by default with Ctrl-C",
        "metrics": "names with commas between; an unknown one lists them",
    }
    | _JSON,
)
def gpu_monitor(
    c: Context, interval: float = 1.0, duration: float = 0.0, metrics: str = "", json: bool = False
) -> None:
    """Watch the GPUs, and say at the end what was worth a word: throttling, idling, full memory, imbalance."""
    from paddock.gpu.cli import operations

    operations.monitor(interval=interval, duration=duration, metrics=metrics, as_json=json)


@task(
    name="export",
    help={
        "file": "write this .prom file once, for node_exporter, instead of serving",
        "host": "the address to serve on: whoever reaches it reads it",
        "port": "the port to serve on",
    },
)
def gpu_export(c: Context, file: str | None = None, host: str = "127.0.0.1", port: int = 9400) -> None:
    """Serve metrics and health for Prometheus, under the names of NVIDIA's DCGM exporter."""
    from paddock.gpu.cli import operations

    operations.export(file=optional_path("file", file), host=host, port=port)


@task(
    name="reset",
    help={
        "gpu": "an index, or how its UUID starts",
        "soft": "only what a user changed: clocks, modes, error counters",
        "yes": "do it",
    }
    | _JSON,
)
def gpu_reset(c: Context, gpu: str, soft: bool = False, yes: bool = False, json: bool = False) -> None:
    """Show what resetting a GPU would do; --yes does it. Refused while it is in use."""
    from paddock.gpu.cli import operations

    if not operations.reset(gpu, soft=soft, yes=yes, as_json=json):
        raise Exit(code=1)


@task(
    name="render",
    positional=["target"],
    iterable=["option"],
    help={
        "target": "docker, docker-sdk, compose, cdi, kubernetes, proxmox, slurm or environment",
        "gpus": "how many; by default every GPU that works",
        "min-memory": "GiB of free memory of each, at least",
        "share": "this part of each one's memory, beside others",
        "mig": "a MIG part of this profile",
        "uuids": "only these, or those whose UUIDs start so",
        "fields": "a JSON file of the target's own fields, in place of these flags",
        "option": "name=value of the target's own; may be given again",
        "output": "write the files into this folder",
        "force": "write over files that are not Paddock's or were edited",
    }
    | _FROM
    | _JSON,
)
def gpu_render(
    c: Context,
    target: str,
    gpus: int = 0,
    min_memory: float = 0.0,
    share: float = 0.0,
    mig: str = "",
    uuids: str = "",
    fields: str | None = None,
    option: list[str] | None = None,
    from_: str | None = None,
    output: str | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Write the configuration that gives GPUs to Docker, Compose, CDI, Kubernetes, Proxmox, Slurm or a shell."""
    from paddock.gpu.cli import operations

    given = {"count": gpus, "min_memory_gib": min_memory, "share": share, "mig": mig, "uuids": uuids.split(",")}
    wanted = {name: value for name, value in given.items() if value not in (0, "", [""])}
    operations.render(
        target,
        wanted=wanted or None,
        fields=optional_path("fields", fields),
        source=optional_path("from", from_),
        options=option or (),
        output=optional_path("output", output),
        force=force,
        as_json=json,
    )


@task(
    name="allocate",
    help=_WANTED
    | {
        "owner": "the pid that the lease lives as long as; by default the process that called this",
        "ttl": "seconds that the lease lives, whoever its owner is",
        "wait": "seconds to wait for GPUs that others have",
        "from": "show what would be chosen of a saved inventory (gpu.list --json), and lease nothing",
    }
    | _JSON,
)
def gpu_allocate(
    c: Context,
    gpus: int = 1,
    min_memory: float = 0.0,
    max_utilisation: float = 100.0,
    prefer: str = "",
    exclude: str = "",
    max_power: float = 0.0,
    workload: str = "",
    share: float = 0.0,
    near: str = "",
    uuids: str = "",
    mig: str = "",
    owner: int = 0,
    ttl: float = 0.0,
    wait: float = 0.0,
    from_: str | None = None,
    json: bool = False,
) -> None:
    """Lease GPUs; prints the variables that show a program what it was given: eval "$(paddock gpu.allocate)"."""
    from paddock.gpu.cli import inventory

    request = inventory.request(
        gpus=gpus,
        min_memory=min_memory,
        max_utilisation=max_utilisation,
        prefer=prefer,
        exclude=exclude,
        max_power=max_power,
        workload=workload,
        share=share,
        near=near,
        uuids=uuids,
        mig=mig,
    )
    if source := optional_path("from", from_):
        inventory.choice(request, source, as_json=json)
        return
    inventory.allocate(request, owner=owner or None, ttl=ttl or None, wait=wait, as_json=json)


@task(name="deallocate", help={"leases": "ids of leases or UUIDs of GPUs, with commas between"} | _JSON)
def gpu_deallocate(c: Context, leases: str = "", json: bool = False) -> None:
    """Give leased GPUs back; by default those that this shell was given."""
    from paddock.gpu.cli import inventory

    inventory.deallocate(leases, as_json=json)


@task(
    name="renew",
    help={"leases": "ids of leases or UUIDs of GPUs, with commas between", "ttl": "seconds that they live from now"}
    | _JSON,
)
def gpu_renew(c: Context, leases: str = "", ttl: float = 0.0, json: bool = False) -> None:
    """Count the time to live of leases from now; by default of those that this shell was given."""
    from paddock.gpu.cli import inventory

    inventory.renew(leases, ttl or None, as_json=json)


@task(name="leases", help=_JSON)
def gpu_leases(c: Context, json: bool = False) -> None:
    """List who has which GPUs."""
    from paddock.gpu.cli import inventory

    inventory.leases(as_json=json)


@task(name="run", help=_WANTED | {"wait": "seconds to wait for GPUs that others have"})
def gpu_run(
    c: Context,
    gpus: int = 1,
    min_memory: float = 0.0,
    max_utilisation: float = 100.0,
    prefer: str = "",
    exclude: str = "",
    max_power: float = 0.0,
    workload: str = "",
    share: float = 0.0,
    near: str = "",
    uuids: str = "",
    mig: str = "",
    wait: float = 0.0,
) -> None:
    """Run a program on GPUs that are its own until it ends: gpu.run --gpus 1 -- python train.py."""
    from paddock.gpu.cli import inventory
    from paddock.gpu.leases.run import run

    # Invoke joins what stands after -- into one text, and words with spaces would fall apart.
    words = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    request = inventory.request(
        gpus=gpus,
        min_memory=min_memory,
        max_utilisation=max_utilisation,
        prefer=prefer,
        exclude=exclude,
        max_power=max_power,
        workload=workload,
        share=share,
        near=near,
        uuids=uuids,
        mig=mig,
    )
    status = run(words, request, wait=wait)
    if status:
        raise Exit(code=status)


@task(
    name="ml-env",
    help={
        "framework": "pytorch, tensorflow, jax or none",
        "min-memory": "GiB of free memory of each GPU, at least",
        "gpus": "how many",
        "cuda": "this CUDA version",
        "target": "docker, kubernetes or venv",
        "image": "an image of your own",
        "path": "with --target venv: the folder to make",
        "start": "start it, and look from inside whether it sees just its GPUs",
        "config": "a JSON file of an MLEnvironmentConfig; flags take precedence",
        "owner": "the pid that the lease lives as long as; by default the process that called this",
        "ttl": "seconds that the lease lives, whoever its owner is",
        "wait": "seconds to wait for GPUs that others have",
    }
    | _JSON,
)
def gpu_ml_env(
    c: Context,
    framework: str = "",
    min_memory: float = 0.0,
    gpus: int = 0,
    cuda: str = "",
    target: str = "",
    image: str = "",
    path: str | None = None,
    start: bool = False,
    config: str | None = None,
    owner: int = 0,
    ttl: float = 0.0,
    wait: float = 0.0,
    json: bool = False,
) -> None:
    """Lease GPUs for a framework, and print or start an environment that this driver runs."""
    from paddock.gpu.cli import work

    code = work.ml_env(
        framework,
        optional_path("config", config),
        min_memory_gib=min_memory or None,
        gpus=gpus or None,
        cuda=cuda or None,
        target=target or None,
        image=image or None,
        path=optional_path("path", path),
        start=start or None,
        owner=owner or None,
        ttl=ttl or None,
        wait=wait or None,
        as_json=json,
    )
    if code:
        raise Exit(code=code)


@task(
    name="workflow",
    positional=["file"],
    help={
        "file": "the workflow, YAML or JSON",
        "dry-run": "show the order, and what each step would do",
        "fresh": "run every step again, also those that are done",
        "journal": "where to note what is done; by default beside the user's other state",
    }
    | _JSON,
)
def gpu_workflow(
    c: Context, file: str, dry_run: bool = False, fresh: bool = False, journal: str | None = None, json: bool = False
) -> None:
    """Run steps on GPUs in their order; a second run goes on after the last good one."""
    from paddock.gpu.cli import work

    where = optional_path("journal", journal)
    code = work.workflow(caller_path(file), dry_run=dry_run, fresh=fresh, journal=where, as_json=json)
    if code:
        raise Exit(code=code)


@task(name="mcp")
def gpu_mcp(c: Context) -> None:
    """Serve the GPU actions to an AI agent over stdin and stdout (Model Context Protocol)."""
    from paddock.gpu.mcp import serve

    serve()

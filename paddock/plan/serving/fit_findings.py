"""Findings on served models: those that fit no GPU or node, outgrow their pools, or would not start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra import versions
from paddock import catalog
from paddock.catalog.cuda_match import on_driver, on_gpu, tag_cuda
from paddock.fleet import Fleet, NewCluster, ServedModel
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.sizing.serving import head_request
from paddock.fleet.sizing.system_nodes import system_node
from paddock.fleet.software import driver
from paddock.plan.finding import Edit, Finding, Severity, put
from paddock.plan.fit import fit_counts
from paddock.plan.serving.fit import ServedFit


def findings(fleet: Fleet, fits: tuple[ServedFit, ...]) -> tuple[Finding, ...]:
    """Return the findings model by model, then those of pools and of the head."""
    if not fleet.served or fleet.serving is None:
        return ()
    results: list[Finding] = []
    for model in fleet.served:
        of_model = [fit for fit in fits if fit.model == model.name]
        results += _memory(model, of_model)
        results += _gpus(model, of_model)
        results += _nodes(model, of_model)
        results += _replicas(fleet, model, of_model)
    for name in fleet.pools:
        results += _pool(fleet, name, fits)
    results += _cuda(fleet)
    results += _random_weights(fleet)
    results += _head(fleet)
    results += _state(fleet)
    return tuple(results)


def _memory(model: ServedModel, fits: Sequence[ServedFit]) -> Iterator[Finding]:
    if short := [fit for fit in fits if fit.lacking_mib]:
        worst = max(short, key=lambda fit: fit.lacking_mib)
        where = ", ".join(dict.fromkeys(f"{fit.instance} of pool {fit.pool}" for fit in short))
        edits = tuple(
            put("serving", "models", model.name, key, value=value)
            for key, value in (worst.changes[0].items() if worst.changes else ())
        )
        counted = f", counted with 16 bits, for {model.quantization} does not say how many" if worst.bounded else ""
        yield Finding(
            "SRV001",
            "warning" if worst.bounded else "error",
            f"serving.models.{model.name}",
            f"it does not fit the memory of a GPU of {where}: it needs {_gib(worst.needed_mib)} on each of "
            f"{model.tensor_parallel} (weights {_gib(worst.weights_mib)}{counted}, cache {_gib(worst.cache_mib)}), and "
            f"in mode {model.mode} vLLM takes {_gib(worst.allowed_mib)} of {_gib(worst.gpu_memory_mib)}",
            " and ".join(map(str, edits)) or "a smaller model, or a pool of GPUs with more memory",
            edits,
        )


def _gpus(model: ServedModel, fits: Sequence[ServedFit]) -> Iterator[Finding]:
    """A replica is one pod. EC2 chooses among a pool's types, also one on which the pod never starts."""
    if small := [fit for fit in fits if _too_few_gpus(model, fit)]:
        types = ", ".join(f"{fit.instance} of pool {fit.pool} has {fit.available.gpus}" for fit in small)
        yield Finding(
            "SRV004",
            "error",
            f"serving.models.{model.name}.tensorParallel",
            f"the {model.tensor_parallel} GPUs of a replica are on one node, and {types}: no replica starts there",
            f"pools of instances with {model.tensor_parallel} GPUs or more; or a smaller tensorParallel",
        )


def _too_few_gpus(model: ServedModel, fit: ServedFit) -> bool:
    return fit.available.gpus < model.tensor_parallel


def _nodes(model: ServedModel, fits: Sequence[ServedFit]) -> Iterator[Finding]:
    misfits = [fit for fit in fits if not fit.per_node and not _too_few_gpus(model, fit)]
    if not misfits:
        return
    request = misfits[0].request
    whole = len(misfits) == len(fits)
    yield Finding(
        "SRV002",
        "error" if whole else "warning",
        f"serving.models.{model.name}.pools",
        f"a replica's pod (cpu {format_cpu(request.cpu_m)}, memory {format_memory(request.memory_mib)}, "
        f"{request.gpus} GPU) fits on {'no' if whole else 'not every'} instance type of its pools: "
        + ", ".join(f"{fit.instance} for lack of {fit.limiting}" for fit in misfits),
        "a pool of other instances, or a larger pools.<name>.maxPods and disk.size",
    )


def _replicas(fleet: Fleet, model: ServedModel, fits: Sequence[ServedFit]) -> Iterator[Finding]:
    room = sum(
        fleet.pools[pool].nodes.max * min(fit.per_node for fit in fits if fit.pool == pool) for pool in model.pools
    )
    replicas = model.replicas
    if not room or replicas.max <= room:
        return
    fewest = replicas.min > room
    edit = put("serving", "models", model.name, "replicas", "min" if fewest else "max", value=room)
    yield Finding(
        "SRV003",
        "error" if fewest else "warning",
        f"serving.models.{model.name}.replicas",
        f"{replicas.min if fewest else replicas.max} replicas are more than {', '.join(model.pools)} can hold: {room}",
        f"{edit}; or a larger pools.<name>.nodes.max",
        () if fewest else (edit,),
    )


def _pool(fleet: Fleet, name: str, fits: tuple[ServedFit, ...]) -> Iterator[Finding]:
    """Models of one pool share its nodes. One that may go elsewhere is not counted."""
    models = [model for model in fleet.served if model.pools == (name,)]
    per_node = {
        model.name: min(fit.per_node for fit in fits if (fit.model, fit.pool) == (model.name, name)) for model in models
    }
    held = [model for model in models if per_node[model.name]]
    fewest = sum(-(-model.replicas.min // per_node[model.name]) for model in held)
    most = sum(-(-model.replicas.max // per_node[model.name]) for model in held)
    limit, key = fleet.pools[name].nodes.max, f"pools.{name}.nodes.max"
    names = ", ".join(model.name for model in held)
    if fewest > limit:
        message = f"the fewest replicas of {names} take {fewest} nodes, and the pool may have {limit}"
        yield Finding("SRV005", "error", key, message, f"{key}: {fewest}", (_grow(name, fewest),))
    elif most > limit and len(held) > 1:
        message = f"all replicas of {names} take {most} nodes, and the pool may have {limit}: some would wait"
        yield Finding("SRV005", "warning", key, message, f"{key}: {most}", (_grow(name, most),))
    elif fleet.serving and fleet.serving.upgrade == "new-cluster" and fewest and limit < 2 * fewest:
        yield Finding(
            "SRV006",
            "warning",
            key,
            f"a change of the pods starts a second cluster next to the first: {2 * fewest} nodes for the fewest "
            f"replicas of {names}, and the pool may have {limit}. The change would wait until one of them ends",
            f"{key}: {2 * fewest}; or serving.upgrade: none, and delete the RayService to change it",
            (_grow(name, 2 * fewest),),
        )


def _grow(pool: str, nodes: int) -> Edit:
    return put("pools", pool, "nodes", "max", value=nodes)


def _cuda(fleet: Fleet) -> Iterator[Finding]:
    """Hold the CUDA of the image of Ray and vLLM against GPUs and drivers of the models' pools."""
    image = fleet.serving.image if fleet.serving and fleet.serving.image else versions.RAY_LLM
    cuda = tag_cuda(image)
    if cuda is None:
        yield Finding("SRV010", "info", "serving.image", f"which CUDA {image} holds is not known: its tag does not say")
        return
    for pool in (pool for pool in fleet.pools.values() if fleet.served_on(pool)):
        has, key = driver(fleet, pool), f"pools.{pool.name}"
        match = on_gpu(cuda, pool.gpu)
        if match.outcome == "ok" and has.version:
            match = on_driver(cuda, has.version, pool.gpu)
        if match.outcome not in ("ok", "minor-version"):
            severity: Severity = "info" if match.outcome == "unknown" else "error"
            fix = "a pool of newer GPUs or drivers; or serving.image with an older CUDA"
            yield Finding("SRV010", severity, key, f"{image} on it: {match.why}", fix)


def _random_weights(fleet: Fleet) -> Iterator[Finding]:
    if names := [model.name for model in fleet.served if model.engine_args.get("load_format") == "dummy"]:
        yield Finding(
            "SRV007",
            "info",
            "serving.models",
            f"{', '.join(names)} will have random weights: the right speed, and nonsense",
            "engineArgs without load_format",
        )


def _head(fleet: Fleet) -> Iterator[Finding]:
    head = head_request(fleet)
    words = f"cpu {format_cpu(head.cpu_m)}, memory {format_memory(head.memory_mib)}"
    if not isinstance(fleet.cluster, NewCluster):
        yield Finding(
            "SRV008",
            "info",
            "serving.head",
            f"whether a node without a GPU has room for Ray's head ({words}) is not known of this cluster",
        )
        return
    system = fleet.cluster.system
    small = [
        name
        for name in system.instances
        if not min(fit_counts(system_node(fleet, catalog.instance(name)), head).values())
    ]
    if small:
        yield Finding(
            "SRV008",
            "error",
            "serving.head",
            f"Ray's head with its autoscaler ({words}) does not fit on a system node of type {', '.join(small)}",
            "larger cluster.system.instances, such as [m7i.xlarge, m6i.xlarge]; or a smaller serving.head",
        )


def _state(fleet: Fleet) -> Iterator[Finding]:
    if fleet.serving and fleet.serving.redis is None:
        lasting = any(model.replicas.min for model in fleet.served)
        yield Finding(
            "SRV009",
            "warning" if lasting else "info",
            "serving.redis",
            "nothing keeps the state of Ray's head: when its pod ends, all replicas end, and load again",
            "serving.redis: {address: rediss://HOST:PORT, password: ARN}",
        )


def _gib(mebibytes: int) -> str:
    return f"{mebibytes / 1024:.1f} GiB"

"""`gpu.list`: the GPUs of a machine, usable or not, and what else there is to see of them."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.console.command import command
from paddock.console.output import BadFlag
from paddock.console.parameters import Flag, one_of, parameter
from paddock.console.report import Report
from paddock.gpu.commands.inputs import OfMachine, pick

_VIEWS = ("columns", "details", "memory", "processes", "topology", "cuda", "toolkit", "leases")


@dataclass(frozen=True, kw_only=True)
class List(OfMachine):
    """Parameters of `gpu.list`: which of the views, by default a line a GPU."""

    columns: tuple[str, ...] = parameter(
        (),
        "these columns alone: index, name, memory, use, temperature, power, uuid, state, pci, serial or numa",
    )
    details: str | None = parameter(
        None,
        "everything about each GPU, or about one: its index, or the beginning of its UUID",
        flag=Flag("details", const="", optional=True),
    )
    memory: bool = parameter(False, "the memory of each GPU and MIG part")
    processes: bool = parameter(False, "the processes on each GPU")
    topology: bool = parameter(False, "how the GPUs reach each other: a matrix and a picture")
    cuda: bool = parameter(False, "driver and CUDA toolkit, and whether they and the GPUs fit together")
    toolkit: str | None = parameter(None, "--cuda for this version (12.8) instead of the installed toolkit")
    leases: bool = parameter(False, "the leased GPUs and their owners, and the requests that wait")


@command()
def list_gpus(parameters: List) -> Report:
    """List the GPUs. Raises BadFlag, GpuInputError and DriverHangs; NoGpu for details of a GPU that is not there."""
    chosen = {name for name in _VIEWS if getattr(parameters, name) not in ((), None, False)}
    if len(chosen - {"toolkit"}) > 1 or (parameters.toolkit is not None and chosen - {"toolkit", "cuda"}):
        flags = " and ".join(f"--{name}" for name in _VIEWS if name in chosen)
        raise BadFlag(f"{flags} are different views\n    expected: one of them")
    if parameters.leases:
        from paddock.gpu.leases.allocation import list_leases
        from paddock.gpu.views.leases import LeasesView

        if parameters.source:
            raise BadFlag("--from holds no leases\n    expected: --leases without it: they are this machine's")
        return LeasesView(found=list_leases())
    if parameters.details is not None:
        from paddock.gpu.views.details import DetailsView

        found = parameters.inventory()
        return DetailsView(
            inventory=found, gpus=(pick(found, parameters.details),) if parameters.details else found.gpus
        )
    if parameters.memory:
        from paddock.gpu.views.memory import MemoryView

        return MemoryView(inventory=parameters.inventory())
    if parameters.processes:
        from paddock.gpu.views.processes import ProcessesView

        return ProcessesView(inventory=parameters.inventory(processes=True))
    if parameters.topology:
        from paddock.gpu.views.topology import TopologyView

        return TopologyView(inventory=parameters.inventory(topology=True))
    if parameters.cuda or parameters.toolkit is not None:
        from paddock.gpu.health.cuda import evaluate
        from paddock.gpu.views.cuda import CudaView

        found = parameters.inventory(programs=True)
        return CudaView(inventory=found, compatibility=evaluate(found, parameters.toolkit))
    return _gpus(parameters)


def _gpus(parameters: List) -> Report:
    from paddock.gpu.views.gpus import COLUMNS, GpusView

    for name in parameters.columns:
        if name not in COLUMNS:
            raise BadFlag(f"--columns: {name!r} is not a column\n    expected: {one_of(name, COLUMNS)}")
    # A program that reads the document may want all of it; the table does not need the slow parts.
    is_document = parameters.json.path is not None
    return GpusView(value=parameters.inventory(processes=is_document, topology=is_document), columns=parameters.columns)

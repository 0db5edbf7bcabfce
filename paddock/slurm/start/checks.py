"""Faults that a start reports before any daemon runs."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from paddock.errors import program
from paddock.gpu.host.machine import machine
from paddock.gpu.render.rendered import unedited
from paddock.slurm.errors import SlurmError, SlurmInputError
from paddock.slurm.start.layout import Layout
from paddock.slurm.start.request import StartRequest

_LEAST_MIB = 16


def check_machine(layout: Layout, root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> None:
    """Raise SlurmInputError outside a container, unless a start wrote the files there: they are the machine's own."""
    # Not every engine marks its containers; the image says its type.
    if machine(root, environ).container or "PADDOCK_GPU_TYPE" in environ:
        return
    if unedited(_text(layout.slurm_conf)) is not None:
        return
    raise SlurmInputError(
        f"this is not a container, and {layout.etc} and {layout.munge_etc} are this machine's own"
        "\n    expected: a container of the image of Slurm, whose files a start may write"
        f"\n    fix: {program()} slurm.configure, then docker compose up --detach in its folder"
    )


def check_state(layout: Layout, request: StartRequest) -> None:
    """Raise SlurmError where the state volume is full, or belongs to another cluster."""
    if request.role == "node":
        return
    folder = next(folder for folder in (layout.state, *layout.state.parents) if folder.exists())
    free = shutil.disk_usage(folder).free >> 20
    if free < _LEAST_MIB:
        raise SlurmError(
            f"{layout.state} has {free} MiB left, and the queue is kept there"
            f"\n    expected: {_LEAST_MIB} MiB or more\n    fix: make room on the disk of that volume"
        )
    cluster = _text(layout.state / "clustername").strip()
    if cluster and cluster != request.cluster:
        raise SlurmInputError(
            f"the queue in {layout.state} is that of the cluster {cluster}\n    expected: {request.cluster}"
            f"\n    fix: --cluster {cluster}, or an empty volume"
        )


def check_network() -> None:
    """Raise SlurmError where there is no network but the loopback: Slurm then resolves no address, not even its own."""
    if all(name == "lo" for _, name in socket.if_nameindex()):
        raise SlurmError(
            "this container has no network\n    expected: one besides the loopback, without which Slurm resolves no"
            " address\n    fix: docker run with a network, not --network none; a private one without a way out will do"
        )


def check_ports(request: StartRequest) -> None:
    """Raise SlurmError where another program listens on a port of a daemon."""
    ports = [
        *([("--controller-port", request.controller_port)] if request.role != "node" else []),
        *([("--daemon-port", request.daemon_port)] if request.role != "controller" else []),
    ]
    for flag, port in ports:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("", port))
            except OSError as error:
                taken = error.errno == errno.EADDRINUSE
                why = "taken by another program" if taken else f"refused: {error.strerror}"
                raise SlurmError(
                    f"port {port} is {why}\n    expected: a free port for Slurm\n    fix: {flag} with another one;"
                    " every container of the cluster takes the same"
                ) from None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

"""The leases of GPUs, and those who wait for some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paddock.console.table import table
from paddock.gpu.host.processes import Owner
from paddock.gpu.report import DocumentReport
from paddock.gpu.views.gpus import UNKNOWN


@dataclass(frozen=True, kw_only=True)
class LeasesView(DocumentReport):
    """Leases with their owners and GPUs, and the requests that wait, the next one first."""

    def text(self) -> Iterator[str]:
        rows = []
        for lease in self.found["leases"]:
            pids = ", ".join(str(Owner(**owner)).removeprefix("pid ") for owner in lease["owners"]) or UNKNOWN
            share = "alone" if lease["share"] is None else f"{lease['share']:g}"
            uuids = ", ".join(device["uuid"] for device in lease["devices"])
            rows.append((lease["id"], lease["state"], lease["user"], pids, share, uuids, lease["command"] or UNKNOWN))
        if rows:
            head = ("lease", "state", "user", "pids", "share", "GPUs", "command")
            yield from table(head, rows, drop=("command", "share", "state", "pids", "user", "GPUs"))
        else:
            yield f"no GPU is leased ({self.found['folder']})"
        if self.found["waiting"]:
            waiting = [
                (
                    entry["id"],
                    str(entry["gpus"]),
                    str(entry["priority"]),
                    entry["user"],
                    str(entry["pid"]),
                    entry["command"] or UNKNOWN,
                )
                for entry in self.found["waiting"]
            ]
            yield ""
            yield from table(("waiting", "GPUs", "priority", "user", "pid", "command"), waiting)

"""Variables that show a program the chosen GPUs and no others."""

from __future__ import annotations

from paddock.gpu.host.visibility import visibility_variables
from paddock.gpu.render.access import capabilities
from paddock.gpu.render.rendered import Rendered, headed
from paddock.gpu.render.request import Order


def render(order: Order) -> Rendered:
    """`gpu.env` is for `docker run --env-file` and systemd's EnvironmentFile, `gpu.sh` to be sourced by a shell."""
    from paddock.gpu.leases.allocation import exports

    found = visibility_variables(order.vendor, order.uuids)
    notes, warnings = list(order.notes), list(order.warnings)
    if order.vendor == "apple":
        notes.append("Metal has one GPU, and no variable that hides it.")
    if order.vendor == "nvidia" and order.devices:
        if wanted := capabilities(order):
            found["NVIDIA_DRIVER_CAPABILITIES"] = ",".join(wanted)
        if sum(one.part is not None for one in order.devices) > 1:
            warnings.append("Several MIG parts are named, and CUDA uses the first of them only.")
    kept = "".join(f"{name}={value}\n" for name, value in found.items() if value is not None)
    if removed := [name for name, value in found.items() if value is None]:
        warnings.append(f"gpu.env cannot remove {' and '.join(removed)}, which must not be set: gpu.sh does.")
    files = (headed("gpu.env", kept), headed("gpu.sh", exports(found) if found else ""))
    return Rendered("environment", files, tuple(notes), tuple(warnings))

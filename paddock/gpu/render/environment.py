"""Variables that show a program the chosen GPUs and no others."""

from __future__ import annotations

from collections.abc import Sequence

from paddock.gpu.model import Vendor
from paddock.gpu.render.access import capabilities
from paddock.gpu.render.order import Order
from paddock.gpu.render.rendered import Rendered, headed


def render(order: Order) -> Rendered:
    """`gpu.env` is for `docker run --env-file` and systemd's EnvironmentFile, `gpu.sh` to be sourced by a shell."""
    from paddock.gpu.allocate import exports

    found = visible(order.vendor, order.uuids)
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


def visible(vendor: Vendor | None, uuids: Sequence[str]) -> dict[str, str | None]:
    """None is one to remove. Without UUIDs it hides every GPU, of which none may be known."""
    named = ",".join(uuids)
    match vendor:
        case "nvidia" | None:
            return {
                "CUDA_VISIBLE_DEVICES": named or "-1",
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                "NVIDIA_VISIBLE_DEVICES": named or "void",
            }
        case "amd":
            # HIP counts anew what ROCR leaves over; its other names would count once more.
            numbers = ",".join(map(str, range(len(uuids))))
            return {
                "ROCR_VISIBLE_DEVICES": named or "-1",
                "HIP_VISIBLE_DEVICES": numbers or "-1",
                "CUDA_VISIBLE_DEVICES": None,
                "GPU_DEVICE_ORDINAL": None,
            }
        case "apple":
            return {}

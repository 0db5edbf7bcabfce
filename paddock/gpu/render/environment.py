"""Environment variables that show a program the chosen GPUs and no others."""

from __future__ import annotations

from paddock.gpu.host.visibility import visibility_variables
from paddock.gpu.render.access import capabilities
from paddock.gpu.render.rendered import Rendered, headed
from paddock.gpu.render.request import RenderRequest


def render(request: RenderRequest) -> Rendered:
    """Render `gpu.env` for `docker run --env-file` and systemd's EnvironmentFile, and `gpu.sh` for a shell."""
    from paddock.gpu.leases.allocation import exports

    variables = visibility_variables(request.vendor, request.uuids)
    notes, warnings = list(request.notes), list(request.warnings)
    if request.vendor == "apple":
        notes.append("Metal has one GPU, and no variable that hides it.")
    if request.vendor == "nvidia" and request.devices:
        if driver_capabilities := capabilities(request):
            variables["NVIDIA_DRIVER_CAPABILITIES"] = ",".join(driver_capabilities)
        if sum(device.part is not None for device in request.devices) > 1:
            warnings.append("Several MIG parts are named, and CUDA uses the first of them only.")
    lines = "".join(f"{name}={value}\n" for name, value in variables.items() if value is not None)
    if removed := [name for name, value in variables.items() if value is None]:
        warnings.append(f"gpu.env cannot remove {' and '.join(removed)}, which must not be set: gpu.sh does.")
    files = (headed("gpu.env", lines), headed("gpu.sh", exports(variables) if variables else ""))
    return Rendered("environment", files, tuple(notes), tuple(warnings))

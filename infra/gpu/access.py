"""Access to GPUs: one way for every node, the device plugin, and each pod that asks for one.

NVIDIA's runtime gives a container the GPUs that NVIDIA_VISIBLE_DEVICES names, which most CUDA images set to `all`, or
those whose UUIDs the device plugin mounts below /var/run/nvidia-container-devices. A job can set the first and not the
second, so nodes accept only mounts from unprivileged containers. Daemons that read every GPU have SYS_ADMIN, for which
the variable still counts. `cdi-cri` was not chosen: on Bottlerocket it takes those daemons their GPUs.

EKS's AL2023 images accept the variable up to v20260403 and refuse it from v20260423 on (awslabs/amazon-eks-ami issue
2706, read 2026-11-22); Bottlerocket has had these settings as defaults since 2024 (its SECURITY_GUIDANCE.md and pull
requests 3718 and 4052, read 2026-11-23).
"""

from __future__ import annotations

from collections.abc import Mapping

STRATEGY = "volume-mounts"
"""deviceListStrategy of the device plugin."""
DAEMON: Mapping[str, object] = {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}
"""Security context of a daemon that reads every GPU of its node."""
TOOLKIT: Mapping[str, bool] = {
    "accept-nvidia-visible-devices-envvar-when-unprivileged": False,
    "accept-nvidia-visible-devices-as-volume-mounts": True,
}
"""Keys of /etc/nvidia-container-runtime/config.toml."""
NVIDIA_CTK = "nvidia-ctk config --in-place" + "".join(
    f" --set {key}={str(value).lower()}" for key, value in TOOLKIT.items()
)
"""The command that writes them."""
BOTTLEROCKET: Mapping[str, Mapping[str, bool | str]] = {
    "kubelet-device-plugins.nvidia": {"device-list-strategy": STRATEGY},
    "nvidia-container-runtime": {key.removeprefix("accept-nvidia-"): value for key, value in TOOLKIT.items()},
}
"""The same by table of Bottlerocket's settings; its device plugin is its own."""


def bottlerocket_settings() -> list[str]:
    """Lines of TOML."""
    lines: list[str] = []
    for table, settings in BOTTLEROCKET.items():
        lines.append(f"[settings.{table}]")
        lines += [
            f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {str(value).lower()}"
            for key, value in settings.items()
        ]
    return lines

"""The command line of each program of the control plane: the rows of `flags.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from paddock.lab.control_plane.identity import Identity


def command_lines(
    folder: Path, programs: Mapping[str, Path], ports: Mapping[str, int], identity: Identity
) -> dict[str, list[str]]:
    """Return the command line of each program."""
    files = ("authority", "certificate", "key", "accounts_key", "tokens")
    words: dict[str, object] = {
        "folder": folder,
        "stages": Path(__file__).with_name("stages.yaml"),
        "client": f"https://127.0.0.1:{ports['etcd']}",
        "peer": f"https://127.0.0.1:{ports['etcd-peer']}",
        **{name: getattr(identity, name) for name in files},
    }
    table = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    lines = {}
    for name, flags in table.items():
        if not name.startswith("."):
            own = {"port": ports[name], "kubeconfig": folder / "kubeconfigs" / name}
            values = {flag: str(value).format(**words, **own) for flag, value in flags.items()}
            lines[name] = [str(programs[name]), *(f"--{flag}={value}" for flag, value in values.items())]
    return lines

"""Print as JSON which Ray and Python a head runs, and its nodes: python head_probe.py HOST:PORT LABEL.

This file runs alone, next to Ray. The nodes are named by their value of the label.

It asks what `ray start` asks before it joins. Ray's client waits long and ends its process on some errors, so it has a
process of its own. The token comes by the environment.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(address: str, label: str) -> dict[str, Any]:
    """Return the head's versions and nodes with this process's own versions, or the error that came instead."""
    import ray
    from ray._common.usage.usage_lib import get_cluster_metadata
    from ray._private.state import GlobalState
    from ray._raylet import GcsClient, GcsClientOptions
    from ray.exceptions import AuthenticationError

    own = {"own_ray": ray.__version__, "own_python": ".".join(map(str, sys.version_info[:3]))}
    try:
        head = get_cluster_metadata(GcsClient(address=address))
    except AuthenticationError:
        return {**own, "error": "token"}
    except Exception as error:  # Ray's errors have no common one
        return {**own, "error": f"{type(error).__name__}: {error}"}
    state = GlobalState()
    state._initialize_global_state(GcsClientOptions.create(address, None, True, False))
    nodes = [node["Labels"].get(label) for node in state.node_table() if node["Alive"]]
    return {**own, "ray": str(head["ray_version"]), "python": str(head["python_version"]), "nodes": nodes}


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(sys.argv[1], sys.argv[2])) + "\n")

"""Print as JSON which Ray and Python a head runs: python head_probe.py HOST:PORT. This file runs alone, beside Ray.

It asks what `ray start` asks before it joins. Ray's client waits long and ends its process on some errors, so it has a
process of its own. The token comes by the environment.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(address: str) -> dict[str, Any]:
    """Return the head's versions with this process's own, or the error that came in their place."""
    import ray
    from ray._common.usage.usage_lib import get_cluster_metadata
    from ray._raylet import GcsClient
    from ray.exceptions import AuthenticationError

    own = {"own_ray": ray.__version__, "own_python": ".".join(map(str, sys.version_info[:3]))}
    try:
        head = get_cluster_metadata(GcsClient(address=address))
    except AuthenticationError:
        return {**own, "error": "token"}
    except Exception as error:  # Ray's errors have no common one
        return {**own, "error": f"{type(error).__name__}: {error}"}
    return {**own, "ray": str(head["ray_version"]), "python": str(head["python_version"])}


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(sys.argv[1])) + "\n")

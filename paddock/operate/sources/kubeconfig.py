"""The fleet's own cluster among the contexts of a kubeconfig."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddock.console.output import BadFlag
from paddock.errors import did_you_mean
from paddock.fleet import Fleet
from paddock.kubernetes.errors import CredentialError, KubeconfigError
from paddock.kubernetes.kubeconfig import Cluster, paths, read
from paddock.operate.sources.unavailable import Unavailable, split_error


def load(chosen: Path | None, context: str | None, fleet: Fleet) -> Cluster:
    """Return the context of that name, else the one of the fleet's cluster, else the current one.

    Raises BadFlag and KubeconfigError for a context or file that is not there, Unavailable where no credential can be
    had.
    """
    cluster_name = fleet.cluster_name
    update = f"aws eks update-kubeconfig --name {cluster_name} --region {fleet.region}"
    config = read(paths(chosen), f"{update}, or --kubeconfig FILE")
    if context and context not in config.contexts:
        hint = did_you_mean(context, config.contexts, f"one of {', '.join(sorted(config.contexts)) or 'none'}")
        raise BadFlag(f"--context {context}: the kubeconfig has no context of that name\n    expected: {hint}")
    own = [name for name, entry in config.contexts.items() if _is_of(entry, fleet)]
    name = context or _only(own, config.current, cluster_name) or config.current
    if name not in config.contexts:
        raise BadFlag(
            f"the kubeconfig has no context for {cluster_name}, and no current one"
            f"\n    expected: a context of that cluster\n    fix: {update}"
        )
    try:
        return config.cluster(name, named=bool(context or own), fix=update)
    except (CredentialError, KubeconfigError) as error:
        raise Unavailable(*split_error(error)) from None


def _is_of(context: object, fleet: Fleet) -> bool:
    """Return whether a context's cluster is the fleet's EKS cluster, as the AWS CLI and eksctl write them."""
    cluster = str(context.get("cluster", "")) if isinstance(context, dict) else ""
    name = fleet.cluster_name
    if cluster.startswith("arn:"):  # arn:aws:eks:us-west-2:123456789012:cluster/NAME
        return cluster.endswith(f":cluster/{name}") and cluster.split(":")[3] == fleet.region
    return cluster in (name, f"{name}.{fleet.region}.eksctl.io")


def _only(own: Sequence[str], current: str, cluster_name: str) -> str:
    """Return the one context of a cluster's, empty for none. Raises BadFlag for several of which none is current."""
    if len(own) < 2:
        return "".join(own)
    if current in own:
        return current
    raise BadFlag(
        f"the kubeconfig has {len(own)} contexts for {cluster_name}: {', '.join(own)}"
        f"\n    expected: the one of this fleet's account\n    fix: --context {own[0]}"
    )

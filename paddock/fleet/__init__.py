"""The fleet: one typed model from which everything else is derived."""

from paddock.fleet.cluster import Cluster, ExistingCluster, KubeconfigCluster, NewCluster
from paddock.fleet.errors import FleetError, Problem
from paddock.fleet.fleet import Fleet, Layers
from paddock.fleet.github import GitHub
from paddock.fleet.images import Images
from paddock.fleet.loader import Stack, load, parse, stack_names
from paddock.fleet.mirror import Mirror
from paddock.fleet.monitoring import Monitoring
from paddock.fleet.network import ExistingNetwork, Network, NewNetwork
from paddock.fleet.pool import GpuPool
from paddock.fleet.runner import Runner

__all__ = [
    "Cluster", "ExistingCluster", "ExistingNetwork", "Fleet", "FleetError", "GitHub", "GpuPool", "Images",
    "KubeconfigCluster", "Layers", "Mirror", "Monitoring", "Network", "NewCluster", "NewNetwork", "Problem", "Runner",
    "Stack", "load", "parse", "stack_names",
]  # fmt: skip

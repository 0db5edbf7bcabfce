"""The fleet: one typed model from which everything else is derived. Other packages import it from here."""

from paddock.fleet.errors import FleetError, Problem
from paddock.fleet.model.cluster import Cluster, ExistingCluster, KubeconfigCluster, NewCluster
from paddock.fleet.model.fleet import Fleet, Layers
from paddock.fleet.model.github import GitHub
from paddock.fleet.model.images import Images
from paddock.fleet.model.mirror import Mirror
from paddock.fleet.model.monitoring import Monitoring
from paddock.fleet.model.network import ExistingNetwork, Network, NewNetwork
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.model.runner import Runner
from paddock.fleet.model.serving import ServedModel, Serving
from paddock.fleet.stackfile.loader import Stack, load, parse, stack_names

__all__ = [
    "Cluster", "ExistingCluster", "ExistingNetwork", "Fleet", "FleetError", "GitHub", "GpuPool", "Images",
    "KubeconfigCluster", "Layers", "Mirror", "Monitoring", "Network", "NewCluster", "NewNetwork", "Problem", "Runner",
    "ServedModel", "Serving", "Stack", "load", "parse", "stack_names",
]  # fmt: skip

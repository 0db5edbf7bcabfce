"""The facts a GPU fleet is planned with, each dated and with its source: instance types, GPUs, CUDA and drivers, EKS
versions and node images, quotas, prices.

Files under ``data/``; null there and None here is "no source said". `stamps` and `stale` tell their age, and
`paddock.catalog.refresh.aws` rewrites those that AWS can answer for.
"""

from paddock.catalog._data import stale, stamps, version
from paddock.catalog.aws import UnknownPrice, fixed_price, fixed_prices, quota_for, quotas, regions
from paddock.catalog.cuda import (
    CudaToolkit,
    UnknownCuda,
    cuda_toolkit,
    cuda_toolkits,
    driver_branch,
    driver_branches,
    driver_limits,
)
from paddock.catalog.eks import (
    EksAmi,
    EksVersion,
    drivers_of,
    eks_addons,
    eks_amis,
    eks_versions,
    latest_ami,
    several_drivers,
)
from paddock.catalog.gpus import Gpu, UnknownGpu, gpu, gpus
from paddock.catalog.instances import (
    InstanceType,
    RegionPrice,
    UnknownInstanceType,
    gpu_instances,
    instance,
    instances,
    other_type,
    price_sources,
)

__all__ = [
    "CudaToolkit", "EksAmi", "EksVersion", "Gpu", "InstanceType", "RegionPrice", "UnknownCuda", "UnknownGpu",
    "UnknownInstanceType", "UnknownPrice", "cuda_toolkit", "cuda_toolkits", "driver_branch", "driver_branches",
    "driver_limits", "drivers_of", "eks_addons", "eks_amis", "eks_versions", "fixed_price", "fixed_prices", "gpu",
    "gpu_instances", "gpus", "instance", "instances", "latest_ami", "other_type", "price_sources", "quota_for",
    "quotas", "regions", "several_drivers", "stale", "stamps", "version",
]  # fmt: skip

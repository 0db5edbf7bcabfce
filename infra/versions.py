"""Every version of what is deployed. Renovate proposes updates from the comments; `inv plan` shows what they change."""

# renovate: datasource=docker depName=ghcr.io/actions/actions-runner-controller-charts/gha-runner-scale-set
ARC = "0.14.2"
"""Controller and scale sets: ARC's controller deletes scale sets whose minor differs from its own.

Not 0.15.0 (2026-10-01) yet, though it updates scale sets in place, and so fixes the listener that keeps a deleted
runner set after a change of the pod template (issues 4561 and 4596 of its repository). It changes all four CRDs,
renames a runner's status to its phase, and takes the counts of runners out of a scale set's status, which the lab's
stand-in writes; and none of our values are tested on its charts, of which we could read no copy on 2026-11-23.
"""

# renovate: datasource=docker depName=ghcr.io/actions/actions-runner
ACTIONS_RUNNER = "2.338.0"
ACTIONS_RUNNER_DIGEST = "sha256:4ffadc0002b2581327e06101fc8c06cd189232baf79fe561fac9caeb76f5e807"
"""GitHub stops serving a runner about 30 days after the release of its successor.

The digest is the index (amd64, arm64) of ghcr.io/actions/actions-runner with that tag, as five public repositories
pin it (read 2026-11-21; none knew a newer release, the youngest of them is of 2026-10-10). Container hooks come from
that image: k8s 0.7.0 and k8s-novolume 0.8.1, for whose own archives no two sources state a checksum.
"""

ACTIONS_RUNNER_SHA256 = {
    # renovate: datasource=github-release-attachments depName=actions/runner digestVersion=v2.338.0
    "x64": "af4b794c1bc41d73d40535e3fe092a39f9679cd8d965954c2aca25a05ca41d32",
    # renovate: datasource=github-release-attachments depName=actions/runner digestVersion=v2.338.0
    "arm64": "628b4a7258487b80c1d3c221095a7ded349f5ae0175fd3dfab708d07428f041b",
}
"""Of actions-runner-linux-<architecture>-<ACTIONS_RUNNER>.tar.gz.

x64: more than five public repositories check their download against it, one says that release notes and API agree;
arm64: three do (read 2026-11-21).
"""

# renovate: datasource=helm depName=nvidia-device-plugin registryUrl=https://nvidia.github.io/k8s-device-plugin
NVIDIA_DEVICE_PLUGIN = "0.20.0"

NODE_FEATURE_DISCOVERY = "v0.19.0"
"""Image of the chart inside the device plugin's; named only where it comes from a mirror."""

# renovate: datasource=helm depName=dcgm-exporter registryUrl=https://nvidia.github.io/dcgm-exporter/helm-charts
DCGM_EXPORTER = "4.8.2"

DCGM_EXPORTER_IMAGE = "4.5.3-4.8.2-distroless"
"""Default of that chart; named only where it comes from a mirror."""

# renovate: datasource=helm depName=cluster-autoscaler registryUrl=https://kubernetes.github.io/autoscaler
CLUSTER_AUTOSCALER_CHART = "9.59.0"

CLUSTER_AUTOSCALER = {"1.33": "v1.33.6", "1.34": "v1.34.5", "1.35": "v1.35.2", "1.36": "v1.36.1"}
"""By Kubernetes minor: the autoscaler simulates the scheduler of its own minor.

The newest patch of each, as tagged in kubernetes/autoscaler on 2026-07-22 (tags read as of 2026-08-22).
"""

KUBECTL = {"1.33": "v1.33.4", "1.34": "v1.34.1", "1.35": "v1.35.4", "1.36": "v1.36.1"}
"""By Kubernetes minor: the image of the jobs that change warm capacity."""

# renovate: datasource=helm depName=kuberay-operator registryUrl=https://ray-project.github.io/kuberay-helm/
KUBERAY = "1.6.2"
"""Chart and operator. Its token authentication from a secret of ours needs 1.6.0 (KubeRay's API reference, read
2026-11-24). Of the CRDs that our reference has, which are younger, only fields of 1.6 are used.
"""

# renovate: datasource=pypi depName=ray
RAY = "2.60.0"
"""Ray in the image of serving, as `locks/serve.txt` pins it: a RayService names it, and all its pods must have it."""

RAY_LLM = f"rayproject/ray-llm:{RAY}-py312-cu130"
"""Ray's image of Serve LLM, with vLLM 0.29 for CUDA 13. By tag: no registry could be asked for its digest, nor for the
tag itself, whose form is that of 2.58.0-py312-cu130, which public repositories run (read 2026-11-27). With another Ray
come other arguments of vLLM: `paddock/catalog/data/vllm_arguments.json` is read again then."""

# renovate: datasource=docker depName=public.ecr.aws/aws-observability/aws-for-fluent-bit
FLUENT_BIT = "3.4.15"
FLUENT_BIT_DIGEST = "sha256:88e1b56cedb230486afeca6eeb26c5f6bd59c48879d0054d1674d5a58838c607"
"""AWS's build of Fluent Bit 5.0.9. The digest is the index (amd64, arm64), as two public sources state it (read
2026-11-23). Pod Identity needs Fluent Bit 4 (fluent/fluent-bit pull request 10115), so a 3.x of this image."""

# renovate: datasource=docker depName=quay.io/prometheus/prometheus
PROMETHEUS = "v3.14.0"
PROMETHEUS_DIGEST = "sha256:5ce7540c3c00ef4ab0c9d2c995c6a5b9c421f44b4a115d97a2c7af3b1c21cbb0"
"""The version that the chart of prometheus-community had on 2026-08-22. The digest is the index, as more than ten
public repositories pin it (read 2026-11-24)."""

# renovate: datasource=docker depName=registry.k8s.io/kube-state-metrics/kube-state-metrics
KUBE_STATE_METRICS = "v2.19.1"
KUBE_STATE_METRICS_DIGEST = "sha256:85108987d044b18a098126732f98602df408888c0f7d456241f5abefb9744bc1"
"""The digest is the index, as four public repositories pin it; two pin 7661da8c..., one platform's (read
2026-11-24)."""

# renovate: datasource=docker depName=otel/opentelemetry-collector-contrib
OPENTELEMETRY_COLLECTOR = "0.160.0"
OPENTELEMETRY_COLLECTOR_DIGEST = "sha256:799dc6cf12c96192af37b5bdba804da8c10b3bc563b43cb90c3f3c58d9572ad6"
"""The digest is the index, as eight public repositories pin it; two pin 5b66b0dc..., one platform's (read
2026-11-24). AWS's own build of it has no digest that two public sources state."""

# renovate: datasource=docker depName=docker
DOCKER_DIND = "29.7.1-dind"

# Renovate updates the patch and the digest of each, by the pattern in renovate.json.
CUDA_BASES: dict[tuple[str, str], str] = {
    ("12.4", "22.04"): "nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04"
    "@sha256:622e78a1d02c0f90ed900e3985d6c975d8e2dc9ee5e61643aed587dcf9129f42",
    ("12.6", "22.04"): "nvidia/cuda:12.6.3-cudnn-devel-ubuntu22.04"
    "@sha256:b3e7fba84d169f46939f00c25be7d016f712a8d651f4756d6a55e693d84d94f2",
    ("12.6", "24.04"): "nvidia/cuda:12.6.3-cudnn-devel-ubuntu24.04"
    "@sha256:50efab398f76258daa91ceebb33b6467e40217c67ea44fb5a2cebc6be7d9cce3",
    ("12.8", "22.04"): "nvidia/cuda:12.8.1-cudnn-devel-ubuntu22.04"
    "@sha256:ad6d59a3bbf3e82c1c849c9ac09cfc2a3e0bbb8655042fd899be6681b3fe2a85",
    ("12.8", "24.04"): "nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04"
    "@sha256:24c8e3581ea6330038b0d374920721983312627f8adbfcf390bdb4b399d280ed",
    ("12.9", "22.04"): "nvidia/cuda:12.9.1-cudnn-devel-ubuntu22.04"
    "@sha256:827e01ba745d5488e8f199bb9331ca006da97542909af4076b89754cbf5a5a55",
    ("12.9", "24.04"): "nvidia/cuda:12.9.2-cudnn-devel-ubuntu24.04"
    "@sha256:5a480db8cbf90098ca816d7e77f07ce5cb4c43353530b6a84915c2dd99c4e0b6",
    ("13.0", "22.04"): "nvidia/cuda:13.0.2-cudnn-devel-ubuntu22.04"
    "@sha256:36c66a3ad4608580cf937f7ec3add9323a610956cfe8c9e2f99ef2ea0c896f01",
    ("13.0", "24.04"): "nvidia/cuda:13.0.3-cudnn-devel-ubuntu24.04"
    "@sha256:0230b7f243483cb15969fa3cc724a9459599604427052fc2a0d4291c7c0647dd",
}

_DEBIAN = "debian:bookworm-slim@sha256:7b140f374b289a7c2befc338f42ebe6441b7ea838a042bbd5acbfca6ec875818"

GATEWAY_BASE = _DEBIAN
"""Base of the gateway before Ray Serve LLM: its Python is 3.11."""

SLURM_BASES = {
    "nvidia": "nvidia/cuda:12.8.1-base-ubuntu24.04"
    "@sha256:133c78a0575303be34164d0b90137a042172bdf60696af01a3c424ab402d86e2",
    "amd": _DEBIAN,
    "none": _DEBIAN,
}
"""By type of GPU: the base of a Slurm node, which has Slurm from its distribution (Debian 12: 22.05, Ubuntu 24.04:
23.11). Debian has the plugin for AMD's library. Both digests are the index (amd64, arm64), as several public
repositories pin them (read 2026-11-23).
"""
"""Base of a runner image by CUDA minor and Ubuntu: those that EKS's NVIDIA drivers run (R580 supports CUDA 13.0).

Digests as public Dockerfiles pin them (read 2026-11-21), two or more that agree; those of 12.6, 12.9 and 13.0 on Ubuntu
22.04 one alone, so they may hold linux/amd64 alone. What is pulled by digest from NVIDIA's repository is NVIDIA's, and
the build looks at the CUDA version inside. NVIDIA has no 12.4 on Ubuntu 24.04.
"""

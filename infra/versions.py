"""Every version of what is deployed. Renovate proposes updates from the comments; `inv plan` shows what they change."""

# renovate: datasource=docker depName=ghcr.io/actions/actions-runner-controller-charts/gha-runner-scale-set
ARC = "0.14.2"
"""Controller and scale sets: ARC's controller deletes scale sets whose minor differs from its own."""

# renovate: datasource=docker depName=ghcr.io/actions/actions-runner
ACTIONS_RUNNER = "2.336.0"
"""GitHub stops serving a runner about 30 days after the release of its successor."""

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

CLUSTER_AUTOSCALER = {"1.33": "v1.33.0", "1.34": "v1.34.0", "1.35": "v1.35.0", "1.36": "v1.36.1"}
"""By Kubernetes minor: the autoscaler simulates the scheduler of its own minor."""

KUBECTL = {"1.33": "v1.33.4", "1.34": "v1.34.1", "1.35": "v1.35.4", "1.36": "v1.36.1"}
"""By Kubernetes minor: the image of the jobs that change warm capacity."""

EKS_ADDONS = {
    "1.33": {"kube-proxy": "v1.33.10-eksbuild.2", "coredns": "v1.12.4-eksbuild.1", "vpc-cni": "v1.21.1-eksbuild.5"},
    "1.34": {"kube-proxy": "v1.34.6-eksbuild.2", "coredns": "v1.12.4-eksbuild.1", "vpc-cni": "v1.21.1-eksbuild.5"},
    "1.35": {"kube-proxy": "v1.35.3-eksbuild.2", "coredns": "v1.13.2-eksbuild.4", "vpc-cni": "v1.21.1-eksbuild.5"},
    "1.36": {"kube-proxy": "v1.36.0-eksbuild.21", "coredns": "v1.14.3-eksbuild.16", "vpc-cni": "v1.22.4-eksbuild.3"},
}
"""EKS add-ons whose versions follow the Kubernetes minor. `inv catalog.refresh` does not touch them; review by hand."""

POD_IDENTITY_AGENT = "v1.3.10-eksbuild.2"
NODE_MONITORING_AGENT = "v1.6.2-eksbuild.1"
EBS_CSI_DRIVER = "v1.57.1-eksbuild.1"

# renovate: datasource=docker depName=docker
DOCKER_DIND = "29.7.1-dind"

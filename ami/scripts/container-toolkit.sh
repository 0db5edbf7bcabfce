#!/usr/bin/env bash
# CDI on, who may see a GPU, and what nodeadm needs to make nvidia the default runtime.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

# nodeadm writes containerd's configuration at boot: with this program the default runtime is nvidia, and from
# Kubernetes 1.32 on CDI is enabled. A second writer would only lose against it.
[[ -x /usr/bin/nvidia-container-runtime ]] || fail "no /usr/bin/nvidia-container-runtime: nodeadm would choose runc"
[[ -x /usr/bin/nodeadm ]] || fail "no /usr/bin/nodeadm: the base image is not EKS's for AL2023"

toolkit=$(nvidia-ctk --version | sed -n 's/.* version //p' | sed -n 1p)
systemctl cat nvidia-cdi-refresh.service > /dev/null 2>&1 ||
  fail "container toolkit $toolkit has no nvidia-cdi-refresh.service, which came with 1.18: take a newer EKS release"
mode=$(nvidia-ctk config | sed -n 's/^ *mode *= *"\(.*\)"/\1/p' | sed -n 1p)
[[ $mode == auto || $mode == *cdi ]] || fail "nvidia-container-runtime is in mode \"$mode\", which does not use CDI"

# As in user data: GPUs come by the device plugin's mounts, and not by a variable that any image may set.
nvidia-ctk config --in-place --set accept-nvidia-visible-devices-envvar-when-unprivileged=false --set accept-nvidia-visible-devices-as-volume-mounts=true

# At boot EKS's own unit loads the driver, and there is nothing to describe before.
install -D -m 0644 /dev/stdin /etc/systemd/system/nvidia-cdi-refresh.service.d/10-after-driver.conf << 'UNIT'
[Unit]
After=nvidia-kmod-load.service
UNIT
systemctl daemon-reload
systemctl enable nvidia-cdi-refresh.path nvidia-cdi-refresh.service

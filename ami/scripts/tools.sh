#!/usr/bin/env bash
# nvtop, and DCGM of the version that dcgm-exporter embeds: tools.sh [DCGM]
set -euo pipefail

fail() { echo "paddock: $*" >&2; exit 1; }

dcgm=${1-}

# nvtop is in SPAL, Amazon's own build of EPEL, since AL2023 2023.9.20251117.
dnf -y install spal-release || fail "no SPAL repository: AL2023 has it from 2023.9.20251117 on, take a newer EKS release"
dnf -y install nvtop

if [[ -n $dcgm ]]; then
  cuda=$("$(dirname "$0")/facts.sh" | sed -n 's/.*"cuda": "\([0-9]*\)\..*/\1/p')
  dnf -y install --setopt=install_weak_deps=True "datacenter-gpu-manager-4-cuda$cuda-$dcgm"
  # dcgm-exporter runs DCGM's engine in its pod, and two engines on one machine can hang the driver.
  systemctl disable nvidia-dcgm.service
fi

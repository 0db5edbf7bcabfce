#!/usr/bin/env bash
# nvtop, and DCGM of dcgm-exporter's version, or the newest: tools.sh [DCGM]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

dcgm=${1-}

# nvtop is in SPAL, Amazon's own build of EPEL, since AL2023 2023.9.20251117.
"${DNF[@]}" install spal-release ||
  fail "no spal-release, and dnf says above whether for want of a network: AL2023 has SPAL from 2023.9.20251117 on"
"${DNF[@]}" install nvtop

if [[ -n $dcgm ]]; then
  cuda=$("$(dirname "$0")/facts.sh" | sed -n 's/.*"cuda": "\([0-9]*\)\..*/\1/p')
  package=datacenter-gpu-manager-4-cuda$cuda
  # NVIDIA's repository for AL2023 may lag behind its containers. Another 4.x serves anyone who looks at a cordoned node.
  dnf -y install --setopt=install_weak_deps=True "$package-$dcgm" ||
    dnf -y install --setopt=install_weak_deps=True "$package" ||
    fail "NVIDIA's repository for AL2023 has no $package, or there is no network: dnf says which above"
  # DCGM's engine runs in a pod, and two engines on one machine can hang the driver.
  systemctl disable nvidia-dcgm.service
fi

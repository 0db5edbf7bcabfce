#!/usr/bin/env bash
# Services of a GPU node, enabled and not started: services.sh [fabric-manager]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

units=(nvidia-persistenced.service amazon-ssm-agent.service)
if [[ ${1-} == fabric-manager ]]; then
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | sed -n 1p)
  # Two names: with a dash before branch 580.
  manager=$(rpm -q --queryformat '%{VERSION}\n' nvidia-fabricmanager 2> /dev/null) ||
    manager=$(rpm -q --queryformat '%{VERSION}\n' nvidia-fabric-manager 2> /dev/null) ||
    fail "no fabric manager in the base image, and a pool has NVSwitch: CUDA would not start there"
  [[ $manager == "$driver" ]] || fail "fabric manager $manager and driver $driver are of different versions"
  units+=(nvidia-fabricmanager.service)
fi
# A start belongs to systemd: from cloud-init it waits for multi-user.target, which waits for cloud-init.
systemctl enable "${units[@]}"

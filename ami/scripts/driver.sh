#!/usr/bin/env bash
# Asserts driver and kernel of the base image, and holds both: driver.sh [DRIVER] [KERNEL]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

driver=${1-} kernel=${2-}

has=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u) ||
  fail "nvidia-smi finds no driver: the base image is not EKS's NVIDIA one, or this instance has no GPU"
running=$(uname -r)

# EKS archives three kernel modules (open, proprietary, GRID) of one version in /var/lib/dkms-archive, and loads at boot
# the one that fits the instance. A package of another branch would change user space and leave those three as they are.
if [[ -n $driver && $has != "$driver" && $has != "$driver".* ]]; then
  fail "the base image has driver $has, and $driver was asked for. It is not installed on top: EKS's image loads one of" \
    "three kernel modules built for $has at boot. Take an EKS release with $driver, or images.ami.driver: \"$has\""
fi
if [[ -n $kernel && $running != "$kernel" && $running != "$kernel"[-.]* ]]; then
  fail "the base image runs kernel $running, and the catalogue says $kernel of its release: inv catalog.refresh"
fi

if dnf -q versionlock list > /dev/null 2>&1; then
  dnf -q versionlock add "${HELD[@]}"
else
  conf=/etc/dnf/dnf.conf
  if ! grep -q '^excludepkgs=.*nvidia' "$conf" 2> /dev/null; then
    mkdir -p "$(dirname "$conf")"
    printf 'excludepkgs=%s\n' "$(IFS=,; echo "${HELD[*]}")" >> "$conf"
  fi
fi
echo "driver $has, kernel $running: as asked for, and held"

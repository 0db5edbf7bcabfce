#!/usr/bin/env bash
# What every script that changes the machine begins with: it must be root, and says why it stops.
set -euo pipefail

fail() { echo "paddock: $*" >&2; exit 1; }

((EUID == 0)) || fail "$0 changes the machine, for which it must be root: sudo $0"

# Packages of kernel, driver, container toolkit and containerd: they stay as they are.
# shellcheck disable=SC2034
HELD=('kernel*' '*nvidia*' 'nvlsm*' 'containerd*')

# AL2023's packages are in the region's S3. NVIDIA's repositories, which EKS's image has configured, are on the internet,
# and what is not theirs must not fail for them where there is no way to it.
# shellcheck disable=SC2034
DNF=(dnf -y --setopt='cuda*.skip_if_unavailable=1' --setopt='nvidia*.skip_if_unavailable=1')

#!/usr/bin/env bash
# What every script that changes the machine begins with: it must be root, and says why it stops.
set -euo pipefail

fail() { echo "paddock: $*" >&2; exit 1; }

((EUID == 0)) || fail "$0 changes the machine, for which it must be root: sudo $0"

# Packages of kernel, driver, container toolkit and containerd: they stay as they are.
# shellcheck disable=SC2034
HELD=('kernel*' '*nvidia*' 'nvlsm*' 'containerd*')

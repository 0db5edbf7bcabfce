#!/usr/bin/env bash
# Security updates of all but kernel, driver, container toolkit and containerd, which come with the next EKS release.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

# AL2023 is locked to the release of its image: without --releasever there is never anything to update.
"${DNF[@]}" upgrade --security --releasever=latest "${HELD[@]/#/--exclude=}" \
  --exclude='cuda*' --exclude='datacenter-gpu-manager*'

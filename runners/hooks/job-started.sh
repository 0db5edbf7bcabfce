#!/usr/bin/env bash
# Runs before the first step of a job: a runner without its GPUs fails here, in words, not an hour later in CUDA.
set -euo pipefail

expected=${PADDOCK_GPUS:-0}
[ "$expected" -gt 0 ] || exit 0

if ! listed=$(nvidia-smi -L 2>&1); then
  echo "::error title=GPU not usable::nvidia-smi failed on $(hostname): ${listed//$'\n'/ }"
  exit 1
fi
seen=$(grep -c '^GPU ' <<< "$listed" || true)
if [ "$seen" -lt "$expected" ]; then
  echo "::error title=GPU missing::this job was given $seen of $expected GPUs on $(hostname)"
  exit 1
fi
echo "$listed"

#!/usr/bin/env bash
# CUDA on the host, then a GPU in a container the two ways there are, and no third: gpu-test.sh [IMAGE@DIGEST] [SNAPSHOTTERS]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

image=${1-}
read -ra snapshotters <<< "${2:-soci}"
here=$(dirname "$0")
smoke=/opt/paddock/cuda/cuda-smoke

# Each machine installs the kernel module of its GPU when it first boots, and that may not be done yet.
if systemctl is-failed --quiet nvidia-kmod-load.service || ! systemctl start nvidia-kmod-load.service; then
  fail "nvidia-kmod-load.service failed, which nodes load their driver with: journalctl -u nvidia-kmod-load"
fi
nvidia-smi -L
if [[ -x $smoke ]]; then
  "$smoke" --all
else
  echo "NOT PROVED: CUDA computes. There is no $smoke; a runner image that carries it brings it along"
fi
if [[ -z $image ]]; then
  echo "NOT PROVED: a container sees the GPU. There is no image to run: write images.runner with a digest"
  exit
fi

trap '"$here/engine.sh" stop' EXIT
"$here/engine.sh" start
systemctl start nvidia-cdi-refresh.service
devices=$(nvidia-ctk cdi list)
[[ $'\n'$devices$'\n' == *$'\n'nvidia.com/gpu=all$'\n'* ]] || fail "no CDI device nvidia.com/gpu=all, only: $devices"

container() { # WAY COMMAND...: "device" by CDI, "mounts" as the device plugin gives pods their GPUs, "variable" not at all
  local way=$1 flags=(--runc-binary /usr/bin/nvidia-container-runtime --env "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
  shift
  case $way in
    device) flags=(--device nvidia.com/gpu=all) ;;
    mounts) flags+=(--mount "type=bind,src=/dev/null,dst=/var/run/nvidia-container-devices/all,options=rbind:ro") ;;
    variable) flags+=(--env NVIDIA_VISIBLE_DEVICES=all) ;;
    *) fail "no way $way" ;;
  esac
  ctr --namespace k8s.io run --rm --snapshotter "$snapshotter" "${flags[@]}" "$image" paddock-gpu-test "$@"
}

run() {
  container "$@" || fail "no GPU in a container ($1, $snapshotter): ${*:2} failed"
}

for snapshotter in "${snapshotters[@]}"; do
  for way in device mounts; do
    run "$way" nvidia-smi -L
    if [[ -x $smoke ]]; then
      run "$way" "$smoke" --all
    fi
  done
  if devices=$(container variable sh -c 'ls /dev/nvidia[0-9]*' 2> /dev/null); then
    fail "NVIDIA_VISIBLE_DEVICES=all gave an unprivileged container ${devices//$'\n'/ }"
  fi
done

#!/usr/bin/env bash
# Stands in for the programs of an EKS GPU machine: every call goes to /tmp/calls, and what would change the machine
# changes a file instead. Installed under each program's name by tests.support.ami_machine.
#
# FAKE_DRIVER 580.159.03, FAKE_KERNEL, FAKE_KUBELET 1.35.6, FAKE_TOOLKIT 1.19.1, FAKE_MODE auto
# FAKE_FABRIC version of the fabric manager; empty: none   FAKE_FREE, FAKE_LAYERS, FAKE_UNPACKED MiB
# FAKE_WITHOUT words of what is absent: versionlock cdi-unit cdi-device smoke spal gpu-in-container
# kmod-load strict-setting
set -euo pipefail

name=$(basename "$0")
without() { [[ " ${FAKE_WITHOUT-} " == *" $1 "* ]]; }
once() { # FILE LINE
  mkdir -p "$(dirname "$1")"
  grep -qxF -- "$2" "$1" 2> /dev/null || echo "$2" >> "$1"
}
images=/var/lib/containerd/images

case $name in
  df | du | uname | lspci) ;;
  *) echo "$name $*" >> /tmp/calls ;;
esac
case $name in
  uname) echo "${FAKE_KERNEL:-6.12.94-123.175.amzn2023.x86_64}" ;;
  kmod-util) [[ $1 == remove ]] && rm -r "/var/lib/dkms/$2" ;;
  kubelet) echo "Kubernetes v${FAKE_KUBELET:-1.35.6}-eks-1234abc" ;;
  nvidia-smi)
    case $* in
      *driver_version*) printf '%s\n' "${FAKE_DRIVER:-580.159.03}" "${FAKE_DRIVER:-580.159.03}" ;;
      *) echo "GPU 0: Tesla T4 (UUID: GPU-0)" ;;
    esac
    ;;
  nvidia-ctk)
    case $* in
      --version) printf 'NVIDIA Container Toolkit CLI version %s\ncommit: abc\n' "${FAKE_TOOLKIT:-1.19.1}" ;;
      config)
        cat /etc/nvidia-container-runtime/config.toml 2> /dev/null ||
          echo '#accept-nvidia-visible-devices-envvar-when-unprivileged = true'
        printf '[nvidia-container-runtime]\n  mode = "%s"\n' "${FAKE_MODE:-auto}"
        ;;
      "config --in-place --set "*)
        for each in "$@"; do
          [[ $each != *=* ]] || once /etc/nvidia-container-runtime/config.toml "${each/=/ = }"
        done
        ;;
      "cdi list")
        echo "nvidia.com/gpu=0"
        without cdi-device || echo "nvidia.com/gpu=all"
        ;;
    esac
    ;;
  rpm) [[ ${FAKE_FABRIC-} && $* == *fabricmanager* ]] && echo "$FAKE_FABRIC" ;;
  dnf)
    case $* in
      *"versionlock list"*) ! without versionlock ;;
      *"versionlock add"*) for each in "${@:4}"; do once /etc/dnf/plugins/versionlock.list "$each"; done ;;
      *install*spal*) ! without spal && once /etc/packages "${*: -1}" ;;
      *install*gpu-manager*.*) ! without dcgm && once /etc/packages "${*: -1}" ;;
      *install*) once /etc/packages "${*: -1}" ;;
    esac
    ;;
  systemctl)
    case $1 in
      cat) ! without cdi-unit ;;
      is-failed) without kmod-load ;;
      enable) for unit in "${@:2}"; do ln -sfn "/lib/$unit" "/etc/systemd/system/$unit"; done ;;
      disable) rm -f "/etc/systemd/system/$2" ;;
      is-enabled) [[ -L /etc/systemd/system/${*: -1} ]] ;;
    esac
    ;;
  aws) echo the-password ;;
  nerdctl)
    case $* in
      login*)
        cat > /tmp/stdin-of-login
        cp /tmp/stdin-of-login "$DOCKER_CONFIG/config.json"
        ;;
      *pull*) once "$images" "${*: -1}" ;;
    esac
    ;;
  df) printf 'Avail\n %s\n' "${FAKE_FREE:-30000}" ;;
  du)
    case $* in
      *content*) printf '%s\ttotal\n' "${FAKE_LAYERS:-10000}" ;;
      *snapshotter*) printf '%s\ttotal\n' "${FAKE_UNPACKED:-0}" ;;
    esac
    ;;
  ctr)
    case $* in
      *"images mount"*)
        once "$images.$5${6-}" "${*: -2:1}"
        mkdir -p "${*: -1}/opt/paddock/cuda"
        if ! without smoke; then
          printf '#!/bin/sh\necho "cuda-smoke $*" >> /tmp/calls\n' > "${*: -1}/opt/paddock/cuda/cuda-smoke"
        fi
        ;;
      *"images unmount"*) rm -rf "${*: -1:1}/opt" ;;
      *"images label"*) once "$images.labels" "${*: -2}" ;;
      *"images list"*) cat "$images" 2> /dev/null || true ;;
      *NVIDIA_VISIBLE_DEVICES=all*) without strict-setting && echo /dev/nvidia0 ;;
      *" run "*) ! without gpu-in-container ;;
    esac
    ;;
esac

#!/usr/bin/env bash
# Pulls the runner image, unpacked where nodes look for it: runner-image.sh [IMAGE@DIGEST] [SNAPSHOTTERS]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

image=${1-}
read -ra snapshotters <<< "${2:-soci}"
here=$(dirname "$0")

if [[ -z $image ]]; then
  echo "no runner image is asked for: the first job on a node pulls its own"
  exit
fi
[[ $image == *@sha256:* ]] || fail "$image names no digest, so tomorrow it may be another image"

layers=/var/lib/containerd/io.containerd.content.v1.content/blobs
unpacked=(/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs /var/lib/soci-snapshotter-grpc)
free_mib() { df --output=avail -B 1M / | tail -n 1 | tr -d ' '; }
held_mib() { { du -xcsm "$@" 2> /dev/null || true; } | tail -n 1 | cut -f 1; }

# nerdctl reads its login from here: in memory, and gone when this ends.
DOCKER_CONFIG=$(mktemp -d /run/paddock-login.XXXXXX)
export DOCKER_CONFIG
mounted=$(mktemp -d /run/paddock-image.XXXXXX)
leave() {
  umount "$mounted" 2> /dev/null || true
  rm -rf "$DOCKER_CONFIG"
  rmdir "$mounted"
  "$here/engine.sh" stop
}
trap leave EXIT
"$here/engine.sh" start

registry=${image%%/*}
ecr='^[0-9]{12}\.dkr[.-]ecr(-fips)?\.([a-z0-9-]+)\.(amazonaws\.com(\.cn)?|on\.aws|on\.amazonwebservices\.com\.cn)$'
if [[ $registry =~ $ecr ]]; then
  aws ecr get-login-password --region "${BASH_REMATCH[2]}" |
    nerdctl login --username AWS --password-stdin "https://$registry" > /dev/null
fi

nerdctl --namespace k8s.io pull --quiet --unpack=false "$image"
# A second attempt finds what the first has pulled and unpacked. Layers of CUDA images grow to two and a half times
# their size.
needs=$(($(held_mib "$layers") * ${#snapshotters[@]} * 5 / 2 + 2048 - $(held_mib "${unpacked[@]}")))
free=$(free_mib)
((free >= needs)) ||
  fail "$free MiB are free, and $image needs $needs to be unpacked: write a larger images.ami.disk"

for snapshotter in "${snapshotters[@]}"; do
  ctr --namespace k8s.io images mount --snapshotter "$snapshotter" "$image" "$mounted"
  smoke=$mounted/opt/paddock/cuda/cuda-smoke
  if [[ -f $smoke ]]; then
    install -D -m 0755 "$smoke" /opt/paddock/cuda/cuda-smoke
  fi
  ctr --namespace k8s.io images unmount --rm --snapshotter "$snapshotter" "$mounted"
done
# The kubelet's garbage collection leaves it alone.
ctr --namespace k8s.io images label "$image" io.cri-containerd.pinned=pinned
echo "$image is in the image, for ${snapshotters[*]}"

#!/usr/bin/env bash
# What one machine leaves behind and no other may find: its driver's module, logins, identities, logs. The last step.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"
shopt -s nullglob

"$(dirname "$0")/engine.sh" stop

# At boot EKS's unit has installed the kernel module of this instance family's GPU, and on some turned the GSP off. A
# node of another family would boot both, and on one of this family the unit would find its module there, and fail. The
# archive of all modules, /var/lib/dkms-archive, stays.
for module in /var/lib/dkms/nvidia*/; do
  kmod-util remove "$(basename "$module")"
done
rm -rf /usr/src/nvidia* /etc/modprobe.d/nvidia-disable-gsp.conf

dnf clean all
rm -rf /var/cache/dnf /var/lib/dnf/history*

# cloud-init's and nodeadm's state: a node starts as if for the first time.
rm -rf /var/lib/cloud/{data,instance,instances,sem} /run/eks /run/nodeadm
if [[ -d /var/lib/kubelet ]]; then
  find /var/lib/kubelet -mindepth 1 -delete
fi
: > /etc/machine-id

rm -rf /root/.docker /root/.aws /root/.ssh/authorized_keys /root/.bash_history
rm -rf /home/*/.docker /home/*/.aws /home/*/.ssh/authorized_keys /home/*/.bash_history
rm -f /etc/ssh/ssh_host_*

# Image Builder still writes its agent's logs, and removes them itself.
rm -rf /var/log/journal/*
find /var/log -type f ! -path '/var/log/amazon/*' -exec truncate --size 0 {} +

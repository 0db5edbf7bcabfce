#!/usr/bin/env bash
# What one machine leaves behind and no other may find: logins, identities, logs. The last step of the build.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"
shopt -s nullglob

"$(dirname "$0")/engine.sh" stop

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

#!/usr/bin/env bash
# containerd as a node has it, before nodeadm has configured it: engine.sh start|stop
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

conf=/run/paddock/containerd.toml
unit=/run/systemd/system/containerd.service.d/90-paddock-build.conf

case ${1-} in
  start)
    # Next to the file that nodeadm owns, and gone with the next boot. Only nodes know the SOCI snapshotter otherwise.
    install -D -m 0600 /dev/stdin "$conf" << 'TOML'
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "/run/containerd/containerd.sock"

[proxy_plugins.soci]
type = "snapshot"
address = "/run/soci-snapshotter-grpc/soci-snapshotter-grpc.sock"

[proxy_plugins.soci.exports]
root = "/var/lib/soci-snapshotter-grpc"
TOML
    install -D -m 0644 /dev/stdin "$unit" << UNIT
[Service]
ExecStart=
ExecStart=/usr/bin/containerd --config $conf
UNIT
    systemctl daemon-reload
    systemctl start soci-snapshotter.service
    systemctl restart containerd.service
    for _ in {1..30}; do
      ctr version > /dev/null 2>&1 && exit
      sleep 1
    done
    fail "containerd does not answer: journalctl -u containerd"
    ;;
  stop)
    systemctl stop containerd.service soci-snapshotter.service
    rm -rf "$unit" "$conf"
    systemctl daemon-reload
    ;;
  *) fail "engine.sh start|stop" ;;
esac

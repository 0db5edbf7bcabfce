#!/bin/bash
set -euo pipefail
cat > /usr/local/sbin/paddock-mig <<'SCRIPT'
#!/bin/bash
set -euo pipefail
not_yet() { [[ $(nvidia-smi --query-gpu=mig.mode.current --format=csv,noheader) == *Disabled* ]]; }
gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader)
if not_yet; then
  # H100 and later change at once, A100 at a reset, and only while nobody holds the GPU open.
  systemctl stop nvidia-persistenced || true
  nvidia-smi -mig 1
  nvidia-smi --gpu-reset || true
  systemctl start nvidia-persistenced || true
  if not_yet; then
    # A virtual machine may not reset its A100s; they remember the mode through a reboot.
    if [ -e "$STATE_DIRECTORY/rebooted" ]; then echo "MIG mode stays off after a reboot" >&2; exit 1; fi
    touch "$STATE_DIRECTORY/rebooted"
    systemctl reboot
    sleep infinity
  fi
fi
for gpu in $gpus; do
  while nvidia-smi mig -i "$gpu" -cgi PROFILE -C; do :; done
  nvidia-smi mig -i "$gpu" -lgi
done
SCRIPT
chmod 755 /usr/local/sbin/paddock-mig
cat > /etc/systemd/system/paddock-mig.service <<'UNIT'
[Unit]
Description=Cuts the GPUs into MIG instances
After=nvidia-kmod-load.service nvidia-fabricmanager.service nvidia-persistenced.service
Before=nodeadm-run.service

[Service]
Type=oneshot
RemainAfterExit=true
StateDirectory=paddock-mig
ExecStart=/usr/local/sbin/paddock-mig

[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable --now paddock-mig.service

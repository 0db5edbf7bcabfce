#!/usr/bin/env bash
# Is this machine what was asked for, and what its ami.json says? verify.sh [fabric-manager] [FACT=VALUE ...]
set -euo pipefail

here=$(dirname "$0")
units=(nvidia-persistenced.service amazon-ssm-agent.service nvidia-cdi-refresh.path)
asked=()
for argument; do
  case $argument in
    fabric-manager) units+=(nvidia-fabricmanager.service) ;;
    ?*=?*) asked+=("$argument") ;;
    '' | ?*=) ;; # not asked
    *)
      echo "paddock: $argument is neither a fact nor a service" >&2
      exit 1
      ;;
  esac
done

nvidia-smi
facts=$("$here/facts.sh")
FACTS=$facts python3 - "${asked[@]}" << 'PYTHON'
import json, os, pathlib, sys

has, path = json.loads(os.environ["FACTS"]), "/etc/paddock/ami.json"
says = json.loads(pathlib.Path(path).read_text())
wrong = [f"{path} says {key} {says.get(key)}, and the machine has {value}"
         for key, value in has.items() if says.get(key) != value]
for argument in sys.argv[1:]:
    key, _, wanted = argument.partition("=")
    found = str((says | has).get(key))
    # A branch is asked for as "580", and a kernel without the number of its build.
    starts = found.startswith((f"{wanted}.", f"{wanted}-")) if key in ("driver", "kernel") else False
    if found != wanted and not starts:
        wrong.append(f"{key} {wanted} was asked for, and the machine has {found}")
    if key == "release" and not wanted.startswith(has["kubelet"] + "-"):
        wrong.append(f"release {wanted} was asked for, and the machine has kubelet {has['kubelet']}")
if wrong:
    sys.exit("\n".join(f"paddock: {line}" for line in wrong))
PYTHON

config=$(nvidia-ctk config)
for setting in envvar-when-unprivileged=false as-volume-mounts=true; do
  key=accept-nvidia-visible-devices-${setting%=*}
  grep -Eq "^$key *= *${setting#*=} *(#|$)" <<< "$config" ||
    { echo "paddock: $key is not ${setting#*=} in /etc/nvidia-container-runtime/config.toml" >&2; exit 1; }
done

for unit in "${units[@]}"; do
  systemctl is-enabled --quiet "$unit" || { echo "paddock: $unit is not enabled" >&2; exit 1; }
done
echo "as asked for: ${asked[*]:-no fact was asked for}"

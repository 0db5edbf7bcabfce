#!/bin/sh
# packages.sh GPU_TYPE: Slurm, munge, an init, and a Python for Paddock, from the distribution. No service starts, and
# no key of munge stays: every cluster has its own.
set -eu
gpu_type=$1
export DEBIAN_FRONTEND=noninteractive

case "$gpu_type" in
  nvidia | amd | none) ;;
  *)
    echo "paddock: GPU_TYPE is $gpu_type; expected: nvidia, amd or none" >&2
    exit 1
    ;;
esac
if ! command -v apt-get > /dev/null; then
  echo "paddock: this base has no apt-get, so it is not of the Debian family; choose another base" >&2
  exit 1
fi

# As Debian's and Ubuntu's own small images do it.
cat > /etc/dpkg/dpkg.cfg.d/without-documents << 'END'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*/LC_MESSAGES/*
path-exclude /usr/share/man/*
END
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 0755 /usr/sbin/policy-rc.d

has() { apt-cache policy "$1" | grep --quiet 'Candidate: [^(]'; }
get() { apt-get install --yes --no-install-recommends "$@"; }

apt-get update --error-on=any
if ! has slurm-wlm; then
  echo "paddock: this base's distribution has no package slurm-wlm; choose Debian 12 or newer, or Ubuntu 24.04" >&2
  exit 1
fi
get ca-certificates munge procps python3 slurm-client slurmctld slurmd tini
plugin=slurm-wlm-rsmi-plugin
if [ "$gpu_type" = amd ] && has "$plugin"; then get "$plugin"; fi
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "paddock: this base has $(python3 --version), and Paddock needs 3.11; choose Debian 12 or newer, or Ubuntu 24.04" >&2
  exit 1
fi
rm -f /usr/sbin/policy-rc.d /etc/munge/munge.key /var/lib/munge/munge.seed

# A user with a name, for `docker run --user 1000`: Slurm runs as users that have one. Ubuntu's image has such a user.
if ! id 1000 > /dev/null 2>&1; then
  useradd --uid 1000 --gid 0 --create-home --shell /bin/bash paddock
else
  usermod --gid 0 "$(id --name --user 1000)"
fi
# Folders that volumes take their owner from. Members of group 0 may write, as any user that Docker starts it as.
for folder in /etc/munge /etc/slurm /run/munge /run/slurm /var/lib/munge /var/log/munge /var/log/slurm \
  /var/spool/slurmctld /var/spool/slurmd /jobs; do
  install --directory --mode 0775 --owner root --group 0 "$folder"
done
chmod 1777 /jobs

rm -rf /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/ldconfig/aux-cache

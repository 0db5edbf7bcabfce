#!/bin/sh
# The user of the jobs, and what they and the runner need from the distribution, among it a Python for Paddock.
set -eu
export DEBIAN_FRONTEND=noninteractive

if ! command -v apt-get > /dev/null; then
  echo "paddock: this base has no apt-get, so it is not of the Debian family; choose another base" >&2
  exit 1
fi

# Numbers and groups as in GitHub's image, before any package can take them.
getent group docker > /dev/null || groupadd --gid 123 docker
id runner > /dev/null 2>&1 || useradd --uid 1001 --user-group --groups docker --create-home --shell /bin/bash runner
# The home too: Ubuntu makes it 0750, and a job's services and tools may run as others.
install --directory --owner runner --group runner /home/runner /home/runner/.cache /home/runner/.cache/ccache

# As Debian's and Ubuntu's own small images do it.
cat > /etc/dpkg/dpkg.cfg.d/without-documents << 'END'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*/LC_MESSAGES/*
path-exclude /usr/share/man/*
END

has() { apt-cache policy "$1" | grep --quiet 'Candidate: [^(]'; }
get() { apt-get install --yes --no-install-recommends "$@"; }

# CUDA stays what the base has and its tag says; all else takes its fixes.
cat > /etc/apt/preferences.d/as-in-the-base << 'END'
Package: *
Pin: release o=NVIDIA
Pin-Priority: -1
END
# By default a source that fails is only a warning, and the tag would stand for what the others had.
apt-get update --error-on=any
apt-get upgrade --yes --no-install-recommends --option Dpkg::Options::=--force-confold
get build-essential ca-certificates ccache cmake curl git git-lfs gnupg jq lsb-release ninja-build openssh-client sudo \
  unzip xz-utils zstd \
  python3 python3-dev python3-numpy python3-pip python3-typing-extensions python3-venv python3-yaml
# Of the runner, which is a .NET program. ICU has another name in every release.
get libkrb5-3 zlib1g '?name(^libicu[0-9]+$)'
rm /etc/apt/preferences.d/as-in-the-base

# shellcheck source=/dev/null
. /etc/os-release
# Actions choose their downloads by it. The runner puts what is in this file into the environment of its jobs.
if [ "${ID:-}" = ubuntu ]; then
  echo "ImageOS=ubuntu${VERSION_ID%%.*}" > /home/runner/.env
  chown runner:docker /home/runner/.env
fi

# Workflows written for GitHub's runners install packages in their steps.
cat > /etc/sudoers.d/runner << 'END'
Defaults env_keep += "DEBIAN_FRONTEND"
runner ALL=(ALL:ALL) NOPASSWD:ALL
END
chmod 0440 /etc/sudoers.d/runner

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; }

if ! new_enough python3; then
  for python in python3.13 python3.12 python3.11; do
    if has "$python-venv"; then
      get "$python" "$python-venv"
      break
    fi
  done
  if ! new_enough "$python" 2> /dev/null; then
    echo "paddock: ${PRETTY_NAME:-this base} has no Python 3.11 or newer; choose another base" >&2
    exit 1
  fi
fi

rm -rf /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/ldconfig/aux-cache

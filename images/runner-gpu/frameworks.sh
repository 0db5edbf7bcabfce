#!/usr/bin/env bash
# frameworks.sh LOCK ROOT: the packages of a lock for the Python of jobs, by their hashes, below ROOT.
set -euo pipefail
lock=$1 root=$2

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "paddock: PyTorch's lock needs Python 3.11, and this base has $(python3 --version); choose Ubuntu 24.04" >&2
  exit 1
fi
mkdir -p "$root"
# The distribution keeps pip out of its Python, because packages of users and of apt may collide; a job has a fresh one.
PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip --disable-pip-version-check --no-cache-dir install --quiet --no-deps \
  --require-hashes --ignore-installed --no-compile --root "$root" --requirement "$lock"

#!/usr/bin/env bash
# environment.sh WHEELS VENV: what Paddock needs, in an environment of its own, from wheels alone.
set -euo pipefail
wheels=$1 venv=$2

for python in python3 python3.13 python3.12 python3.11; do
  if command -v "$python" > /dev/null && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    break
  fi
done
"$python" -m venv "$venv"
"$venv/bin/python" -m pip --disable-pip-version-check --no-cache-dir install --quiet --no-index --no-deps --no-compile \
  --find-links "$wheels" --require-hashes --requirement "$wheels/base.txt"
# A job's user cannot write here; unchecked, because files of an image do not change and have no dates worth comparing.
"$venv/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$venv/lib"

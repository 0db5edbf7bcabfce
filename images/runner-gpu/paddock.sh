#!/usr/bin/env bash
# paddock.sh WHEEL VENV: Paddock into its environment, which then needs no pip any more.
set -euo pipefail
wheel=$1 venv=$2

pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-cache-dir)
"${pip[@]}" install --quiet --no-index --no-deps --no-compile "$wheel"
"${pip[@]}" uninstall --quiet --yes pip setuptools 2> /dev/null
"$venv/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$venv/lib"
ln -s "$venv/bin/paddock" /usr/local/bin/paddock

#!/usr/bin/env bash
# fetch.sh URL SHA256 FILE: downloads a file that must have this checksum.
set -euo pipefail
url=$1 expected=$2 file=$3

if ! curl --fail --silent --show-error --location --retry 3 --output "$file" "$url"; then
  echo "paddock: cannot download $url
    fix: see that a build reaches it, or name a mirror with --build-arg RUNNER_URL=..." >&2
  exit 1
fi
found=$(sha256sum "$file" | cut -d ' ' -f 1)
if [[ $found != "$expected" ]]; then
  echo "paddock: wrong checksum of $url: expected sha256 ${expected:-(none given)}, found $found
    fix: write the checksum that its release states, in ACTIONS_RUNNER_SHA256 of infra/versions.py or --build-arg RUNNER_SHA256=...; where it is the right one, another file is there: --build-arg RUNNER_URL=..." >&2
  exit 1
fi

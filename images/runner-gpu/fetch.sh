#!/usr/bin/env bash
# fetch.sh URL SHA256 FILE: downloads a file that must have this checksum.
set -euo pipefail
url=$1 expected=$2 file=$3

if ! curl --fail --silent --show-error --location --retry 3 --output "$file" "$url"; then
  echo "paddock: cannot download $url" >&2
  exit 1
fi
found=$(sha256sum "$file" | cut -d ' ' -f 1)
if [[ $found != "$expected" ]]; then
  echo "paddock: wrong checksum of $url: expected sha256 ${expected:-(none given)}, found $found" >&2
  exit 1
fi

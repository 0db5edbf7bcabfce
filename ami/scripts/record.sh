#!/usr/bin/env bash
# Writes /etc/paddock/ami.json: record.sh RELEASE BUILD [RUNNER_IMAGE]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

(($# >= 2)) || fail "record.sh RELEASE BUILD [RUNNER_IMAGE]"
release=$1 build=$2 image=${3-}
here=$(dirname "$0")

if [[ -n $image ]]; then
  trap '"$here/engine.sh" stop' EXIT
  "$here/engine.sh" start
  images=$(ctr --namespace k8s.io images list --quiet)
  [[ $'\n'$images$'\n' == *$'\n'$image$'\n'* ]] || fail "$image is not in this image"
fi
facts=$("$here/facts.sh")

mkdir -p /etc/paddock
FACTS=$facts python3 - "$release" "$build" "$image" << 'PYTHON'
import datetime, json, os, pathlib, sys

release, build, image = sys.argv[1:]
path = pathlib.Path("/etc/paddock/ami.json")
facts = json.loads(os.environ["FACTS"]) | {"release": release or None, "build": build, "runner_image": image or None}
try:
    before = json.loads(path.read_text())
except (OSError, ValueError):
    before = {}
built = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
facts["built"] = before.get("built") if before == facts | {"built": before.get("built")} else built
path.write_text(json.dumps(facts, indent=2) + "\n")
PYTHON
chmod 0644 /etc/paddock/ami.json
cat /etc/paddock/ami.json

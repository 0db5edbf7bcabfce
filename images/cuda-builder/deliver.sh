#!/bin/sh
# Puts the programs and then their manifest into /output, each whole or not at all.
set -eu

refuse() {
    # shellcheck disable=SC2016 # they are the caller's
    printf 'cuda-builder: %s\n    fix: docker run --user "$(id -u):$(id -g)" --volume "$PWD/cuda-build:/output" …\n' "$1" >&2
    exit 2
}

if [ ! -d /output ]; then
    refuse 'no folder is mounted at /output'
fi
if [ ! -w /output ]; then
    refuse "user $(id -u) may not write to the folder at /output, which is that of user $(stat -c %u /output)"
fi

deliver() {
    part=/output/.$(basename "$1").part
    trap 'rm -f "$part"' EXIT
    cp "$1" "$part"
    mv -f "$part" "/output/$(basename "$1")"
}

for program in /opt/paddock/cuda/*; do
    [ "$program" = /opt/paddock/cuda/manifest.json ] || deliver "$program"
done
deliver /opt/paddock/cuda/manifest.json
cat /output/manifest.json

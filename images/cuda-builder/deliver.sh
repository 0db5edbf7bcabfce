#!/bin/sh
# Puts the programs and then their manifest into /output, each whole or not at all, owned as that folder is.
set -eu

if [ ! -d /output ]; then
    # shellcheck disable=SC2016 # $PWD is the caller's
    printf 'cuda-builder: no folder is mounted at /output\n    fix: docker run --volume "$PWD/cuda-build:/output" …\n' >&2
    exit 2
fi
if [ ! -w /output ]; then
    printf 'cuda-builder: user %s may not write to the folder at /output, which is that of user %s\n' \
        "$(id -u)" "$(stat -c %u /output)" >&2
    exit 2
fi
owner=$(stat -c %u:%g /output)

deliver() {
    part=/output/.$(basename "$1").part
    trap 'rm -f "$part"' EXIT
    cp "$1" "$part"
    if [ "$(id -u)" = 0 ]; then chown "$owner" "$part"; fi
    mv -f "$part" "/output/$(basename "$1")"
}

for program in /opt/paddock/cuda/*; do
    [ "$program" = /opt/paddock/cuda/manifest.json ] || deliver "$program"
done
deliver /opt/paddock/cuda/manifest.json
cat /output/manifest.json

#!/usr/bin/env bash
# docker-client.sh FOLDER: the client of Docker and its buildx for runners with a Docker daemon next to them; the
# distribution's package would bring a daemon too.
set -euo pipefail
folder=$1

has() { [[ $(apt-cache policy "$1") == *'Candidate: '[^\(]* ]]; }

apt-get update --error-on=any
mkdir -p "$folder" /tmp/docker
cd /tmp/docker
packages=(docker.io)
if has docker-cli; then packages=(docker-cli); fi
if has docker-buildx; then packages+=(docker-buildx); fi
apt-get download "${packages[@]}"
for package in ./*.deb; do
  dpkg-deb --extract "$package" extracted
done
install -D extracted/usr/bin/docker "$folder/bin/docker"
for plugin in extracted/usr/lib*/docker/cli-plugins/docker-buildx; do
  if [[ -e $plugin ]]; then install -D "$plugin" "$folder/libexec/docker/cli-plugins/docker-buildx"; fi
done
rm -rf /tmp/docker

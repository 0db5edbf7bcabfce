#!/usr/bin/env bash
# The scripts of the packages once more, where all is installed: with fixes, newer CUDA, and then a dead source.
set -euo pipefail
rm -rf /etc/apt/sources.list.d/*
echo 'Acquire::Retries "0";' > /etc/apt/apt.conf.d/90-at-once  # each further attempt would wait longer
: > /etc/apt/sources.list
package() {  # package NAME VERSION FOLDER
  mkdir -p /made/DEBIAN "$3"
  printf '%s\n' "Package: $1" "Version: $2" 'Architecture: all' 'Maintainer: us <us@example.com>' \
    'Description: none' > /made/DEBIAN/control
  dpkg-deb --build /made "$3/$1_$2.deb"
}
repository() {  # repository FOLDER ORIGIN
  cd "$1"
  dpkg-scanpackages . > Packages
  sum=$(sha256sum Packages | cut -d ' ' -f 1)
  printf '%s\n' "Origin: $2" SHA256: " $sum $(stat -c %s Packages) Packages" > Release
  echo "deb [trusted=yes] file:$1 ./" >> /etc/apt/sources.list
}
for each in openssl-like cuda-like; do
  package $each 1.0 /installed
  dpkg --install /installed/${each}_1.0.deb
done
package openssl-like 2.0 /fixes
package cuda-like 2.0 /cuda
install -D /bin/true /made/usr/bin/docker
package docker.io 1.0 /fixes
repository /fixes Ubuntu
repository /cuda NVIDIA
printf '%s\n' ID=ubuntu 'VERSION_ID="24.04"' > /etc/os-release
cd /
sh /scripts/packages.sh
{
  dpkg-query --show --showformat '${Package} ${Version}\n' openssl-like cuda-like
  stat -c '%n %a %U:%G' /home/runner /home/runner/.env
  cat /home/runner/.env
  ls /etc/apt/preferences.d
} > /told
echo 'deb [trusted=yes] http://127.0.0.1:9/ ./' >> /etc/apt/sources.list
for each in 'sh /scripts/packages.sh' 'bash /scripts/docker-client.sh /client'; do
  if $each; then echo "$each takes what it gets" >> /told; fi
done
cat /told

#!/usr/bin/env bash
# Compiles the CUDA programs next to this script into the folder named, with the manifest that tells what they are.
#   CUDA           the toolkit that is wanted, such as 12.8; empty for the one that is here
#   ARCHITECTURES  such as "75 80 90"; empty for all that the toolkit has
set -euo pipefail

out=$1
cd "$(dirname "$0")/cuda-smoke"
export PATH="$PATH:/usr/local/cuda/bin" LC_ALL=C

refuse() {
    printf 'cuda-builder: %s\n' "$@" >&2
    exit 2
}

command -v nvcc >/dev/null || refuse 'no nvcc here' '    fix: a base with the CUDA toolkit, such as nvidia/cuda:…-devel-…'
toolkit=$(nvcc --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
if [[ -n ${CUDA:-} && $(cut -d. -f1,2 <<<"$CUDA") != "$toolkit" ]]; then
    refuse "this is CUDA $toolkit, not the $CUDA that is wanted" '    fix: the base of that version'
fi

mapfile -t known < <(nvcc --list-gpu-code | sed 's/^sm_//' | sort -n)
read -ra wanted <<<"${ARCHITECTURES:-${known[*]}}"
for each in "${wanted[@]}"; do
    [[ " ${known[*]} " == *" $each "* ]] || refuse "CUDA $toolkit does not compile for sm_$each" "    expected: of ${known[*]}"
done
mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | sort -nu)
newest=${wanted[-1]}

code=()
for each in "${wanted[@]}"; do code+=(-gencode "arch=compute_$each,code=sm_$each"); done
# PTX of the newest, which later GPUs compile for themselves.
code+=(-gencode "arch=compute_$newest,code=compute_$newest")

mkdir -p "$out"
nvcc -O2 -std=c++17 "${code[@]}" --threads 0 --cudart static \
    -Xcompiler -Wall,-Wextra,-static-libstdc++,-static-libgcc -Xlinker --strip-all,--build-id=none \
    -o "$out/cuda-smoke" ./*.cu ./*.cpp

# The oldest C library that runs it: built on one system, it must run on another.
glibc=$(objdump -T "$out/cuda-smoke" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)

case $(uname -m) in
    x86_64) platform=linux/amd64 ;;
    aarch64) platform=linux/arm64 ;;
    *) platform=linux/$(uname -m) ;;
esac

printf '{"schema": 2, "platform": "%s", "toolkit": "%s", "architectures": [%s], "glibc": "%s", "files": {"cuda-smoke": {"sha256": "%s", "bytes": %d}}}\n' \
    "$platform" "$toolkit" "$(printf '"%s", ' "${wanted[@]}" | sed 's/, $//')" "${glibc#GLIBC_}" \
    "$(sha256sum "$out/cuda-smoke" | cut -d' ' -f1)" "$(stat -c %s "$out/cuda-smoke")" >"$out/manifest.json"
cat "$out/manifest.json"

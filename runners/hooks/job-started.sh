#!/usr/bin/env bash
# Runs before the first step of a job. Only a broken GPU ends it with 1, and the job with it, in words and not an hour
# later in CUDA; a fault of this hook is a warning. docs/hooks.md says what it looks at.
set -u

case ${PADDOCK_HOOKS:-on}/${PADDOCK_GPUS:-0} in
  off/* | */0 | */*[!0-9]*) exit 0 ;;
esac

python=${PADDOCK_PYTHON:-/opt/paddock/venv/bin/python}
if [ -x "$python" ]; then
  code=0
  # -I: what a job sets for Python is not for this one. The parent is the runner.
  timeout -k 0.2 4.7 "$python" -I -m paddock.gpu.job_hooks started "$PPID" || code=$?
  case $code in
    0) ;;
    10) exit 1 ;;
    *)
      echo "::warning title=Job hook failed::job-started ended with code $code;" \
        "the GPUs were not checked, and the job continues"
      ;;
  esac
  exit 0
fi

# An image without Paddock: is there a GPU at all?
if ! command -v nvidia-smi > /dev/null; then
  echo "::warning title=GPU not checked::this image has neither Paddock nor nvidia-smi"
  exit 0
fi
where=${NODE_NAME:-$(hostname)}
output=
# No signal ends a program that hangs in the driver, so nobody waits for it, and it holds no output of this script.
IFS= read -r -d '' -t 4.5 output < <(
  exec 2>&1
  nvidia-smi -L || echo "failed with code $?"
  printf '\0'
) || output="failed: it does not answer"
listed=$(printf '%s' "$output" | tr '\n' ';')
case $listed in
  *"failed with code "* | "failed: "*)
    echo "::error title=GPU not usable::nvidia-smi on $where: $listed. It is not your code: re-run the job"
    exit 1
    ;;
esac
# A part of a GPU counts as one, and not the GPU that it is a part of.
parts=$(printf '%s\n' "$output" | grep -c '^ *MIG ') || true
count=$(printf '%s\n' "$output" | grep -c '^GPU ') || true
[ "$parts" -eq 0 ] || count=$parts
if [ "$count" -lt "$PADDOCK_GPUS" ]; then
  echo "::error title=GPU missing::this job was given $count of $PADDOCK_GPUS GPUs on $where." \
    "It is not your code: re-run the job"
  exit 1
fi
printf '%s' "$output"

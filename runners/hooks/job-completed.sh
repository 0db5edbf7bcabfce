#!/usr/bin/env bash
# Runs after the last step of a job, and never fails it: the job's own result stands. docs/hooks.md says what it does.
set -u

case ${PADDOCK_HOOKS:-on}/${PADDOCK_GPUS:-0} in
  off/* | */0 | */*[!0-9]*) exit 0 ;;
esac

# What the job put on PATH comes after the system's own.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${PATH:-}

python=${PADDOCK_PYTHON:-/opt/paddock/venv/bin/python}
if [ -x "$python" ]; then
  code=0
  timeout -k 0.5 19 "$python" -I -m paddock.gpu.job_hooks completed "$PPID" || code=$?
  [ "$code" -eq 0 ] ||
    echo "::warning title=Job hook failed::job-completed ended with code $code; the job's own result stands"
  exit 0
fi

# An image without Paddock: does the job still hold a GPU? No signal ends a program that hangs in the driver.
query=--query-compute-apps=pid,process_name,used_memory
busy=
IFS= read -r -d '' -t 19 busy < <(exec 2> /dev/null; nvidia-smi "$query" --format=csv,noheader; printf '\0') || true
busy=$(printf '%s' "$busy" | tr '\r\n' ' ;' | sed 's/%/%25/g; s/;$//')
[ -z "$busy" ] || echo "::warning title=GPU still in use::processes left after the job: $busy"
exit 0

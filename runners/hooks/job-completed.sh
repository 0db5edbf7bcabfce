#!/usr/bin/env bash
# Runs after the last step of a job, and never fails it: the job's own result stands. docs/hooks.md says what it does.
set -u

case ${PADDOCK_HOOKS:-on}/${PADDOCK_GPUS:-0} in
  off/* | */0 | */*[!0-9]*) exit 0 ;;
esac

python=${PADDOCK_PYTHON:-/opt/paddock/venv/bin/python}
if [ -x "$python" ]; then
  code=0
  timeout -k 0.5 19 "$python" -I -m paddock.gpu.job completed "$PPID" || code=$?
  [ "$code" -eq 0 ] ||
    echo "::warning title=Job hook failed::job-completed ended with code $code; the job's own result stands"
  exit 0
fi

# An image without Paddock: does the job still hold a GPU?
asked=--query-compute-apps=pid,process_name,used_memory
busy=$(timeout -k 0.5 19 nvidia-smi "$asked" --format=csv,noheader 2> /dev/null) || true
[ -z "$busy" ] ||
  echo "::warning title=GPU still in use::processes left after the job: $(printf '%s' "$busy" | tr '\n' ';')"
exit 0

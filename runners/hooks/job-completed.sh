#!/usr/bin/env bash
# Runs after the last step of a job. Nothing here may fail it: the job's own result stands.
set -uo pipefail

[ "${PADDOCK_GPUS:-0}" -gt 0 ] || exit 0
busy=$(nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader 2> /dev/null || true)
if [ -n "$busy" ]; then
  echo "::warning title=GPU still in use::processes left after the job: ${busy//$'\n'/; }"
fi
exit 0

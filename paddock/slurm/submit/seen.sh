#!/bin/sh
# What a test job sees. It ends when its input does, so that jobs run at the same time for as long as the test needs.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
echo "job=$SLURM_JOB_ID"
echo "node=$SLURMD_NODENAME"
echo "gpus=${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}"
echo "shards=$SLURM_SHARDS_ON_NODE"
echo "cuda=$CUDA_VISIBLE_DEVICES"
echo "rocr=$ROCR_VISIBLE_DEVICES"
find /dev -maxdepth 2 -type c 2>/dev/null | sed 's/^/device=/'
slurmd -G -N "$SLURMD_NODENAME" 2>&1 | sed -n 's/.*Gres Name=gpu /gres=/p'
if command -v paddock >/dev/null; then
  echo "== inventory"
  paddock gpu.list --json 2>/dev/null
fi
echo "== end"
cat >/dev/null

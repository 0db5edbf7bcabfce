#!/bin/sh
# CUDA numbers GPUs as the driver does, not the fastest first.
echo export CUDA_DEVICE_ORDER=PCI_BUS_ID
# Without variables a job that asked for no GPU would have all. Slurm leaves them as they were where it set none.
if [ -z "$SLURM_STEP_GPUS$SLURM_JOB_GPUS$SLURM_SHARDS_ON_NODE" ] ||
  [ -z "$CUDA_VISIBLE_DEVICES$ROCR_VISIBLE_DEVICES" ]; then
  echo export CUDA_VISIBLE_DEVICES=-1
  echo export ROCR_VISIBLE_DEVICES=-1
  exit
fi
# Slurm counts the GPUs that it has; the driver also counts those that were left out.
translated() {
  IFS=,
  uuids=
  for number in $1; do
    case $number in
      # cases
      *) uuid=-1 ;;
    esac
    uuids=$uuids${uuids:+,}$uuid
  done
  echo "$uuids"
}
[ -z "$CUDA_VISIBLE_DEVICES" ] || echo "export CUDA_VISIBLE_DEVICES=$(translated "$CUDA_VISIBLE_DEVICES")"
[ -z "$ROCR_VISIBLE_DEVICES" ] || echo "export ROCR_VISIBLE_DEVICES=$(translated "$ROCR_VISIBLE_DEVICES")"
exit 0

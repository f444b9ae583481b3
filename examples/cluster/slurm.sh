#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
##SBATCH --gpus-per-node=8
# A training on several machines with Slurm (with GPUs: remove one # above).
#
#   sbatch slurm.sh /shared/imagenet/train train.py ARGUMENTS
#
# lcache runs once on each machine and starts torchrun there. Make the key once, in your home: lcache cluster key > ~/.lcache.key && chmod 600 ~/.lcache.key
set -eu
export LCACHE_CLUSTER=auto
export LCACHE_CLUSTER_KEY="${LCACHE_CLUSTER_KEY:-$HOME/.lcache.key}"
export LCACHE_CACHE="${LCACHE_CACHE:-/nvme/lcache}" # on a local SSD of each machine
SOURCE=$1
shift
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
srun lcache run --source "$SOURCE" -- \
  torchrun --nnodes="$SLURM_NNODES" --nproc-per-node="${SLURM_GPUS_ON_NODE:-1}" \
  --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$HEAD:29500" "$@"

#!/bin/sh
# A training on several machines with torchrun: run this on every machine, with the same HEAD, MACHINES and RUN.
#
#   HEAD=node1 MACHINES=4 GPUS=8 ./torchrun.sh train.py ARGUMENTS
#
# Each machine starts a server of its own when train.py opens its dataset, and the servers find each other by torchrun's variables. Make the key once, in a
# folder that all machines share: lcache cluster key > ~/.lcache.key && chmod 600 ~/.lcache.key
# Programs that set the same variables (accelerate, DeepSpeed, Lightning) need only the three exports.
set -eu
export LCACHE_CLUSTER=auto
export LCACHE_CLUSTER_KEY="${LCACHE_CLUSTER_KEY:-$HOME/.lcache.key}"
export LCACHE_CACHE="${LCACHE_CACHE:-/nvme/lcache}" # on a local SSD of each machine
exec torchrun --nnodes="$MACHINES" --nproc-per-node="${GPUS:-1}" \
  --rdzv-id="${RUN:-train}" --rdzv-backend=c10d --rdzv-endpoint="$HEAD:${PORT:-29500}" "$@"

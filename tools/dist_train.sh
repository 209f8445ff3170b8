#!/usr/bin/env bash
# Trains on several GPUs or, with --device cpu, in several CPU processes.
#
#   tools/dist_train.sh CONFIG GPUS [ARGS ...]
#
# GPUS is the number of processes on this machine; with several machines, run it on each.
# ARGS go to tools/train.py. Environment: NNODES, the number of machines; NODE_RANK, the
# index of this one; MASTER_ADDR and PORT, address and a free port of the first one.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 CONFIG GPUS [ARGS ...]" >&2; exit 2; }
config=$1 gpus=$2
tools=$(dirname "${BASH_SOURCE[0]}")

PYTHONPATH="$tools/..${PYTHONPATH:+:$PYTHONPATH}" torchrun \
  --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" \
  --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}" \
  --nproc_per_node="$gpus" \
  "$tools/${TOOL:-train.py}" --launcher pytorch "$config" "${@:3}"

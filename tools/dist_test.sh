#!/usr/bin/env bash
# Tests on several GPUs, or with several CPU processes where there is no GPU.
#
#   tools/dist_test.sh CONFIG CHECKPOINT GPUS [ARGS ...]
#
# ARGS go to tools/test.py. GPUS and environment: as in dist_train.sh.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 CONFIG CHECKPOINT GPUS [ARGS ...]" >&2; exit 2; }
config=$1 checkpoint=$2 gpus=$3
tools=$(dirname "${BASH_SOURCE[0]}")

PYTHONPATH="$tools/..${PYTHONPATH:+:$PYTHONPATH}" torchrun \
  --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" \
  --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}" \
  --nproc_per_node="$gpus" \
  "$tools/test.py" "$config" "$checkpoint" --launcher pytorch "${@:4}"

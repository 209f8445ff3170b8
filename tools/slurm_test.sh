#!/usr/bin/env bash
# Tests on a Slurm cluster.
#
#   tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [ARGS ...]
#
# ARGS go to tools/test.py. Environment: as in slurm_train.sh.
set -euo pipefail
[ $# -ge 4 ] || { echo "usage: $0 PARTITION JOB_NAME CONFIG CHECKPOINT [ARGS ...]" >&2; exit 2; }
gpus=${GPUS:-8}
gpus_per_node=${GPUS_PER_NODE:-$((gpus < 8 ? gpus : 8))}
gres=${GRES-gpu:$gpus_per_node}
read -ra srun_args <<<"${SRUN_ARGS:-}"
tools=$(dirname "${BASH_SOURCE[0]}")

export PYTHONPATH="$tools/..${PYTHONPATH:+:$PYTHONPATH}" MASTER_PORT="${PORT:-29500}"
srun --partition="$1" --job-name="$2" ${gres:+--gres="$gres"} \
  --ntasks="$gpus" --ntasks-per-node="$gpus_per_node" \
  --cpus-per-task="${CPUS_PER_TASK:-5}" --kill-on-bad-exit=1 \
  ${srun_args[@]+"${srun_args[@]}"} \
  python -u "$tools/test.py" "$3" "$4" --launcher slurm "${@:5}"

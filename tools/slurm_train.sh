#!/usr/bin/env bash
# Trains on a Slurm cluster.
#
#   tools/slurm_train.sh PARTITION JOB_NAME CONFIG [ARGS ...]
#
# ARGS go to tools/train.py.
#
# Environment: GPUS           processes in all, one per GPU (8)
#              GPUS_PER_NODE  processes on one machine (8, or GPUS if that is less)
#              CPUS_PER_TASK  CPU cores of a process (10: one, and 8 workers at most)
#              GRES           resources per machine (gpu:GPUS_PER_NODE); may be empty
#              PORT           free port on the first machine (29500)
#              SRUN_ARGS      further arguments of srun
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 PARTITION JOB_NAME CONFIG [ARGS ...]" >&2; exit 2; }
gpus=${GPUS:-8}
gpus_per_node=${GPUS_PER_NODE:-$((gpus < 8 ? gpus : 8))}
gres=${GRES-gpu:$gpus_per_node}
read -ra srun_args <<<"${SRUN_ARGS:-}"
tools=$(dirname "${BASH_SOURCE[0]}")

export PYTHONPATH="$tools/..${PYTHONPATH:+:$PYTHONPATH}" MASTER_PORT="${PORT:-29500}"
srun --partition="$1" --job-name="$2" ${gres:+--gres="$gres"} \
  --ntasks="$gpus" --ntasks-per-node="$gpus_per_node" \
  --cpus-per-task="${CPUS_PER_TASK:-10}" --kill-on-bad-exit=1 \
  ${srun_args[@]+"${srun_args[@]}"} \
  python -u "$tools/${TOOL:-train.py}" --launcher slurm "${@:3}"

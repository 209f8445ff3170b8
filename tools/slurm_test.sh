#!/usr/bin/env bash
# Tests on a Slurm cluster.
#
#   tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [ARGS ...]
#
# ARGS go to tools/test.py. Environment: as in slurm_train.sh.
set -euo pipefail
[ $# -ge 4 ] || { echo "usage: $0 PARTITION JOB_NAME CONFIG CHECKPOINT [ARGS ...]" >&2; exit 2; }
TOOL=test.py exec "$(dirname "${BASH_SOURCE[0]}")/slurm_train.sh" "$@"

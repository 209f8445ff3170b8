#!/usr/bin/env bash
# Tests on several GPUs or, with --device cpu, in several CPU processes.
#
#   tools/dist_test.sh CONFIG CHECKPOINT GPUS [ARGS ...]
#
# ARGS go to tools/test.py. GPUS and environment: as in dist_train.sh.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 CONFIG CHECKPOINT GPUS [ARGS ...]" >&2; exit 2; }
TOOL=test.py exec "$(dirname "${BASH_SOURCE[0]}")/dist_train.sh" "$1" "$3" "$2" "${@:4}"

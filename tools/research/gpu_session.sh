#!/usr/bin/env bash
# Measures on a GPU, in at most 9 minutes of an H100, what a CPU cannot show. Each part has
# a time limit; what does not fit is reported as not run. A second call measures only that.
#
#   tools/research/gpu_session.sh [PART...]   of tests, steps, latency, elastic, loaders (all)
#
# Environment: OUT  folder of PART.json and report.md (work_dirs/gpu_session)
#              TOY  1: small models and images, to try the script, also on a CPU; the
#                   folder is then work_dirs/gpu_session_toy
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$PWD/.venv/bin:$PATH
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
export TOY=${TOY:-} OUT=${OUT:-work_dirs/gpu_session${TOY:+_toy}}
declare -A seconds=([tests]=60 [steps]=180 [latency]=120 [elastic]=110 [loaders]=40)
parts=("$@")
[ $# -gt 0 ] || parts=(tests steps latency elastic loaders)
for part in "${parts[@]}"; do
  [ -n "${seconds[$part]:-}" ] || { echo "usage: $0 [tests] [steps] [latency] [elastic] [loaders]" >&2; exit 2; }
  limit=$((${seconds[$part]} * (${TOY:-0} > 0 ? 10 : 1)))  # two CPU cores are slow, even at toy size
  timeout -k 5 "$limit" python tools/research/gpu_session.py "$part" || echo "$part ended with $?" >&2
done
python tools/research/gpu_session.py report

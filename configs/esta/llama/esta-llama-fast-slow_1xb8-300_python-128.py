# ESTA on two tiny LLaMAs: 14 stitches, low-rank updates, biases per stitch, drawn by
# importance (section 5.2 of the paper, which has FS stitches of 7B and 13B). One CPU
# core, batch 8; measured: see ../small_scale.md.
_base_ = [
    '../../_base_/stitched_lm_runtime.py',
    '../../_base_/datasets/python_128.py',
    '../../_base_/schedules/adamw_cosine_lm_600.py',
]
fast = dict(
    model_type='llama',
    vocab_size=257,
    hidden_size=128,
    intermediate_size=352,
    num_hidden_layers=4,
    num_attention_heads=4,
    max_position_embeddings=256,
)
slow = dict(fast, hidden_size=256, intermediate_size=688)
slow.update(num_hidden_layers=8, num_attention_heads=8)
anchors = [
    dict(
        type='HFDecoderAnchor',
        model=size,
        lora=dict(rank=16, alpha=16),
        init_cfg=dict(
            type='Pretrained',
            checkpoint=f'work_dirs/llama-{name}_1xb8-600_python-128/iter_600.pth',
            prefix='backbone.',
        ),
    )
    for name, size in (('fast', fast), ('slow', slow))
]
model = dict(
    type='CausalLM',
    data_preprocessor=dict(type='TextPreprocessor', length=128),
    backbone=dict(
        type='SNNetv2',
        anchors=anchors,
        stitching_layer=dict(
            type='LoRAStitchingLayer', rank=0.25, alpha=None, train_bias=False
        ),
        plugins=dict(stitch_biases=dict(type='StitchBiases')),
    ),
)
optim_wrapper = dict(optimizer=dict(weight_decay=1e-4), clip_grad=None)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.02, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0, begin=30, end=300, by_epoch=False),
]
train_cfg = dict(max_iters=300, val_interval=300)
val_cfg = dict(stitches='anchors')
test_cfg = dict(stitches='all')

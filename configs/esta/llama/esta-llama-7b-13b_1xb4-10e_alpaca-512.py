# ESTA on LLaMA-7B and 13B with the 52K instructions of Alpaca (section 5.2 of the
# paper; table 2 rates answers between Alpaca-LoRA 7B and 13B). One GPU with 80 GB,
# batch 128 (32 accumulated batches of 4). The paper has 40 stitches and frozen weights
# in 8 bits; here nearest interpolation gives 33, and weights are in bfloat16. Learning
# rate, length and validation rows are ours. Ours: not yet run.
_base_ = ['../../_base_/stitched_lm_runtime.py']
anchors = [
    dict(
        type='HFDecoderAnchor',
        model=dict(
            model_type='llama',
            hidden_size=width,
            intermediate_size=hidden,
            num_hidden_layers=depth,
            num_attention_heads=depth,
        ),
        pretrained=f'checkpoints/llama-{name}',
        lora=dict(rank=16, alpha=16),
        dtype='bfloat16',
        with_cp=True,
    )
    for name, width, hidden, depth in (
        ('7b', 4096, 11008, 32),
        ('13b', 5120, 13824, 40),
    )
]
# The largest anchor runs in every iteration and teaches the drawn stitch.
model = dict(
    type='SandwichWrapper',
    labels='hard',
    alpha=0.5,
    logits_from='target_logits',
    model=dict(
        type='CausalLM',
        data_preprocessor=dict(type='TextPreprocessor', length=512),
        backbone=dict(
            type='SNNetv1',
            anchors=anchors,
            stitching_layer=dict(
                type='LoRAStitchingLayer', rank=0.25, alpha=None, train_bias=False
            ),
            plugins=dict(stitch_biases=dict(type='StitchBiases')),
        ),
    ),
)
alpaca = dict(
    type='AlpacaDataset',
    ann_file='data/alpaca/alpaca_data.json',
    tokenizer='checkpoints/llama-7b',
)
train_dataloader = dict(
    batch_size=4,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='SeededSampler', of='InfiniteSampler', shuffle=True),
    dataset=dict(alpaca, type='SeededDataset', of='AlpacaDataset', rows=(2000, None)),
)
val_dataloader = dict(
    batch_size=4,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(alpaca, rows=(0, 2000)),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Perplexity')
test_evaluator = val_evaluator
# Ten epochs of 50002 rows.
optim_wrapper = dict(
    type='OptimWrapper', accumulative_counts=32, optimizer=dict(type='Adam', lr=3e-4)
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, begin=0, end=3200, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0, begin=3200, end=125010, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=125010, val_interval=12512)
auto_scale_lr = dict(base_batch_size=128)
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(
            _delete_=True,
            type='SandwichSampler',
            anchors='slowest',
            sampler=dict(type='ImportanceSampler', warm_up=391, num_groups=6),
        )
    )
)

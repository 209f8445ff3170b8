# ESTA on LLaMA-7B and 13B with the 52K instructions of Alpaca (section 5.2 of the
# paper; table 2 rates answers between Alpaca-LoRA 7B and 13B). One GPU with 80 GB,
# batch 128 (32 accumulated batches of 4). The paper has 40 stitches in the space of
# SN-Netv1, and frozen weights in 8 bits. SN-Netv1's code for networks of unequal depth
# enters the slow one before every block but its first: 41 stitches with both anchors;
# weights are in bfloat16. Ours: not yet run.
_base_ = [
    '../../_base_/stitched_lm_runtime.py',
    '../../_base_/datasets/alpaca_512.py',
    '../../_base_/schedules/adam_cosine_lm_10e.py',
]
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
            stages=[0],
            stitching_layer=dict(
                type='LoRAStitchingLayer', rank=0.25, alpha=None, train_bias=False
            ),
            plugins=dict(stitch_biases=dict(type='StitchBiases')),
        ),
    ),
)
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

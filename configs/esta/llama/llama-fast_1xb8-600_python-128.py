# A LLaMA of 4 blocks of width 128 on bytes, from scratch: the fast anchor of
# esta-llama-fast-slow. One CPU core, batch 8. No such network in the paper; measured:
# see ../small_scale.md.
_base_ = [
    '../../_base_/lm_runtime.py',
    '../../_base_/datasets/python_128.py',
    '../../_base_/schedules/adamw_cosine_lm_600.py',
]
model = dict(
    type='CausalLM',
    data_preprocessor=dict(type='TextPreprocessor', length=128),
    backbone=dict(
        type='HFDecoderAnchor',
        model=dict(
            model_type='llama',
            vocab_size=257,
            hidden_size=128,
            intermediate_size=352,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=256,
        ),
    ),
)

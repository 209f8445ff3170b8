# LLaMA-7B alone with low-rank updates, on the 52K instructions of Alpaca: Alpaca-LoRA
# 7B of ESTA's table 2, by the recipe of the stitched model. The paper rates its answers
# 100 % and those of 13B 123 %. One GPU with 80 GB, batch 128 (32 accumulated batches of
# 4). Ours: not yet run.
_base_ = [
    '../../_base_/lm_runtime.py',
    '../../_base_/datasets/alpaca_512.py',
    '../../_base_/schedules/adam_cosine_lm_10e.py',
]
model = dict(
    type='CausalLM',
    data_preprocessor=dict(type='TextPreprocessor', length=512),
    backbone=dict(
        type='HFDecoderAnchor',
        model=dict(
            model_type='llama',
            hidden_size=4096,
            intermediate_size=11008,
            num_hidden_layers=32,
            num_attention_heads=32,
        ),
        pretrained='checkpoints/llama-7b',
        lora=dict(rank=16, alpha=16),
        dtype='bfloat16',
        with_cp=True,
    ),
)

"""Small language models of the transformers package, and token ids for them."""

import torch

WORDS = 50
LORA = dict(type='LoRAStitchingLayer', rank=0.25, alpha=None, train_bias=False)
BIASES = dict(stitch_biases=dict(type='StitchBiases'))


def anchor_config(depth=2, width=16, tied=False, settings=None, **kw):
    """Return the config of an anchor with heads of 4 channels and 32 positions."""
    model = dict(
        model_type='llama',
        vocab_size=WORDS,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=depth,
        num_attention_heads=width // 4,
        num_key_value_heads=width // 8,
        max_position_embeddings=32,
        tie_word_embeddings=tied,
    )
    return dict(type='HFDecoderAnchor', model=model | (settings or {}), **kw)


def some_ids(*shape):
    return torch.randint(WORDS, shape, generator=torch.Generator().manual_seed(1))

# The 52K instructions of Alpaca, in 512 tokens: 50002 rows, and 2000 to validate with,
# which is ours. Batch 4.
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

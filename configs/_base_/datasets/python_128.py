# The bytes of Python's standard library in pieces of 128; needs only Python's own
# files. For another folder set data_root and, for example, pattern='**/*.txt'.
dataset_type = 'TextFiles'
data_root = None
train_dataloader = dict(
    batch_size=8,
    num_workers=0,
    sampler=dict(type='SeededSampler', of='InfiniteSampler', shuffle=True),
    dataset=dict(type='SeededDataset', of=dataset_type, data_root=data_root),
)
val_dataloader = dict(
    batch_size=32,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type=dataset_type, data_root=data_root, split='val', num_pieces=512),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Perplexity')
test_evaluator = val_evaluator
auto_scale_lr = dict(base_batch_size=8)

# Generated scenes with depth, no files. The sky, at 20 m, is not evaluated.
_base_ = ['./toy_scenes_64x64.py']
train_dataloader = dict(dataset=dict(depth=True))
val_dataloader = dict(dataset=dict(depth=True))
test_dataloader = val_dataloader
val_evaluator = dict(_delete_=True, type='RunningDepthMetric', max_depth=20)
test_evaluator = val_evaluator

# Generated scenes labelled by the class of their nearest object, 3 classes, no files.
# Visualization hooks have no image to read.
_base_ = ['./toy_scenes_64x64.py']
dataset_type = 'ToyLabels'
scenes = dict(pipeline=[dict(type='PackInputs')])
train_dataloader = dict(dataset=dict(of=dataset_type, **scenes))
val_dataloader = dict(dataset=dict(type=dataset_type, **scenes))
test_dataloader = val_dataloader
val_evaluator = dict(_delete_=True, type='Accuracy', topk=(1, 2))
test_evaluator = val_evaluator

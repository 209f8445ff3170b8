# Generated scenes with the class of their largest object, 4 classes, no files.
# Visualization hooks have no image to read.
_base_ = ['./toy_scenes_64x64.py']
dataset_type = 'ToyLabels'
pipeline = [dict(type='PackInputs')]
train_dataloader = dict(
    dataset=dict(
        of=dataset_type,
        num_objects=(1, 2),
        pipeline=[
            dict(type='RandomFlip', prob=0.5, direction='horizontal'),
            dict(type='PackInputs'),
        ],
    ),
)
val_dataloader = dict(
    dataset=dict(type=dataset_type, num_objects=(1, 2), pipeline=pipeline)
)
test_dataloader = val_dataloader
val_evaluator = dict(_delete_=True, type='Accuracy', topk=(1, 2))
test_evaluator = val_evaluator

# Generated scenes with the boxes and masks of their objects, one class, no files.
# Visualization hooks have no image to read.
_base_ = ['./toy_scenes_64x64.py']
dataset_type = 'ToyObjects'
load_instances = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
meta_keys = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')
train_dataloader = dict(
    batch_size=8,
    dataset=dict(
        of=dataset_type,
        pipeline=[
            load_instances,
            dict(type='RandomFlip', prob=0.5),
            dict(type='PackDetInputs'),
        ],
    ),
)
val_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        pipeline=[
            load_instances,
            # Labels for the metric, which has no annotation file.
            dict(type='PackDetInputs', meta_keys=(*meta_keys, 'instances')),
        ],
    )
)
test_dataloader = val_dataloader
val_evaluator = dict(
    _delete_=True,
    type='StitchCocoMetric',
    metric=['bbox', 'segm'],
    metric_items=['mAP', 'mAP_50', 'mAP_75'],
)
test_evaluator = val_evaluator

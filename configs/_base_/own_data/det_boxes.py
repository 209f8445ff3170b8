# Faster R-CNN for boxes without outlines; otherwise as det.py.
_base_ = ['./det.py']
model = dict(
    type='FasterRCNN',
    data_preprocessor=dict(pad_mask=False),
    roi_head=dict(mask_roi_extractor=None, mask_head=None),
)
_base_.train_pipeline[1].with_mask = False
_base_.train_pipeline[3].recompute_bbox = False
_base_.test_pipeline[2].with_mask = False
train_pipeline = _base_.train_pipeline
test_pipeline = _base_.test_pipeline
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric=['bbox'])
test_evaluator = val_evaluator

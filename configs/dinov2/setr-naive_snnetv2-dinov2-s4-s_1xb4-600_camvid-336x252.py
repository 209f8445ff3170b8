# The pair of setr-naive_snnetv2-dinov2-s4-s_1xb4-1200_camvid-238x168.py, with anchors
# trained at this size, stitched on images with twice as many pixels. One CPU core,
# batch 4. No figure in the paper; not yet run.
_base_ = './setr-naive_snnetv2-dinov2-s4-s_1xb4-1200_camvid-238x168.py'
crop_size = (252, 336)
scale = (336, 252)
model = dict(data_preprocessor=dict(size=crop_size))
for anchor in _base_.model.backbone.anchors:
    anchor.init_cfg.img_size = anchor.img_size
    anchor.img_size = crop_size
_base_.train_dataloader.dataset.pipeline[2].scale = scale
_base_.train_dataloader.dataset.pipeline[3].crop_size = crop_size
_base_.val_dataloader.dataset.pipeline[1].scale = scale
_base_.test_dataloader.dataset.pipeline[1].scale = scale
_base_.param_scheduler[1].end = 600
train_cfg = dict(max_iters=600, val_interval=600)

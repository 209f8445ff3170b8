# SETR of SN-Netv2's authors on COCO-Stuff-10K, 171 classes: images and transforms as
# for ADE20K, and the schedule that their released configs effectively ran, 80k
# iterations of batch 16.
_base_ = ['./datasets/ade20k_512x512.py']
dataset_type = 'COCOStuffDataset'
data_root = 'data/coco_stuff10k'
train_dataloader = dict(
    dataset=dict(
        of=dataset_type,
        data_root=data_root,
        reduce_zero_label=True,
        data_prefix=dict(
            img_path='images/train2014', seg_map_path='annotations/train2014'
        ),
    )
)
val_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        reduce_zero_label=True,
        data_prefix=dict(
            img_path='images/test2014', seg_map_path='annotations/test2014'
        ),
    )
)
test_dataloader = val_dataloader
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='SGD', lr=0.01, momentum=0.9, weight_decay=0.0005),
)
param_scheduler = [
    dict(type='PolyLR', eta_min=1e-4, power=0.9, begin=0, end=80000, by_epoch=False)
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=80000, val_interval=8000)
auto_scale_lr = dict(base_batch_size=16)

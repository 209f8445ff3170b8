# COCO-Stuff-10K, 171 classes, 512x512 crops; images and transforms as for ADE20K.
_base_ = ['./ade20k_512x512.py']
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

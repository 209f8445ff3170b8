# SN-Netv2 of DeiT3-B and DeiT3-L on ImageNet-1K, 134 stitches (section 5.1).
# 8 GPUs, batch 256. Paper: curve only (figure 6). Ours: not yet run.
_base_ = ['./snnetv2-deit3-s-l_8xb32-50e_in1k-224x224.py']
fast_checkpoint = 'checkpoints/deit_3_base_224_21k.pth'
slow_checkpoint = 'checkpoints/deit_3_large_224_21k.pth'
anchor = dict(type='PlainViT', img_size=224)
model = dict(
    backbone=dict(
        anchors=[
            dict(
                arch='base',
                drop_path_rate=0.15,
                init_cfg=dict(type='Pretrained', checkpoint=fast_checkpoint),
                **anchor,
            ),
            dict(
                arch='large',
                drop_path_rate=0.4,
                init_cfg=dict(type='Pretrained', checkpoint=slow_checkpoint),
                **anchor,
            ),
        ],
    ),
    head=dict(
        ends=[
            dict(
                in_channels=768,
                init_cfg=dict(type='Pretrained', checkpoint=fast_checkpoint),
            ),
            dict(
                in_channels=1024,
                init_cfg=dict(type='Pretrained', checkpoint=slow_checkpoint),
            ),
        ],
    ),
)

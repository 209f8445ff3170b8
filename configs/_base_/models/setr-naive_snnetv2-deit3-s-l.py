# SETR with the naive decoder on SN-Netv2 of DeiT3-S and DeiT3-L, 150 classes,
# with relative position biases as on DeiT3-L.
_base_ = ['./setr-naive_deit3-l.py']
anchor = dict(type='PlainViT', img_size=512, rel_pos_bias=True, drop_path_rate=0.1)
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[
            dict(
                arch=arch,
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint=f'checkpoints/deit_3_{arch}_224_21k.pth',
                ),
                **anchor,
            )
            for arch in ('small', 'large')
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
        out_indices=(9, 14, 19, 23),
        # Only the auxiliary heads read the other maps.
        eval_maps=(3,),
    )
)

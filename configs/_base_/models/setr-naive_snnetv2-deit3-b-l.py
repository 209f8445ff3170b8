# SETR with the naive decoder on SN-Netv2 of DeiT3-B and DeiT3-L, 150 classes.
_base_ = ['./setr-naive_snnetv2-deit3-s-l.py']
fast, slow = _base_.model.backbone.anchors
weights = dict(type='Pretrained', checkpoint='checkpoints/deit_3_base_224_21k.pth')
model = dict(
    backbone=dict(
        anchors=[dict(fast, arch='base', init_cfg=weights), slow],
        stitching_layer=dict(rank=4),
    )
)

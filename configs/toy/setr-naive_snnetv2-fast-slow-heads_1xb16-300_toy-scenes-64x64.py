# The demo pair with a decode head for each end anchor. The fast anchor's head starts
# from its own checkpoint. CPU, batch 16. No figure in the paper; measured: see
# README.md.
_base_ = ['./setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py']
model = dict(
    backbone=dict(maps_of='end'),
    decode_head=dict(
        type='PartPerAnchor',
        parts=[
            dict(
                type='SETRUPHead',
                in_channels=32,
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint={{_base_.fast_checkpoint}},
                    prefix='decode_head.',
                ),
            ),
            dict(type='SETRUPHead'),
        ],
    ),
)

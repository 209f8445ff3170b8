# The depth network of the demo, trained from scratch: 8 blocks, width 96, patch 8, and
# a narrow DPT head; a few large objects on grey ground, up to 15 m. CPU, batch 8. No
# figure in the paper; measured: see README.md.
_base_ = ['./dpt_vit-slow_1xb16-300_toy-scenes-64x64.py']
model = dict(
    decode_head=dict(
        channels=8,
        post_process_channels=(4, 8, 12, 16),
        readout_type='ignore',
        max_depth=15,
    ),
)
scenes = dict(max_depth=15, num_objects=(1, 3), feet=(0.4, 0.95), grey=True)
train_dataloader = dict(batch_size=8, dataset=scenes)
auto_scale_lr = dict(base_batch_size=8)
val_dataloader = dict(dataset=scenes)
test_dataloader = val_dataloader
optim_wrapper = dict(
    paramwise_cfg=dict(custom_keys=dict(decode_head=dict(lr_mult=5.0)))
)

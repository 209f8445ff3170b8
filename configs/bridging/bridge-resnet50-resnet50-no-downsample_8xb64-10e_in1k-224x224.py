# ResNet-50 stitched to itself by bottlenecks that keep the grid ("Bridging Large Gaps",
# figure 3: no downsample), which runs out of memory at the widest gaps. 8 GPUs, batch
# 512. Paper: curve only. Ours: not yet run.
_base_ = ['./bridge-resnet50-resnet50_8xb64-10e_in1k-224x224.py']
model = dict(backbone=dict(stitching_layer=dict(resize='none')))

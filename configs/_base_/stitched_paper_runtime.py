# What training and testing a stitched model adds in the papers: all stitches are tested
# with the batch norm statistics of training, which mixes theirs.
_base_ = ['./stitched_runtime.py']
default_hooks = dict(stitch_statistics=dict(num_images=0))

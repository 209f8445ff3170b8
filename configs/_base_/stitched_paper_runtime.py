# Runtime of stitched models as in the papers: all stitches are tested with the batch
# norm statistics of training, which are averaged over all of them.
_base_ = ['./stitched_runtime.py']
default_hooks = dict(stitch_statistics=dict(num_images=0))

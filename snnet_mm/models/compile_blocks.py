"""torch.compile for stitches: block by block, so that switching compiles nothing."""

from torch import nn

from snnet_mm.utils import check

from .stitch_switch import find_stitched_backbone


def compile_blocks(model: nn.Module, **kwargs) -> None:
    """Compile the blocks of every anchor, in place, by settings of ``torch.compile``.

    As a whole, a model would be compiled again for every route. The blocks of an anchor
    share what is compiled for the first of them: one compilation per anchor and input
    size. Sizes are static by default: widths of two anchors are no size that varies.
    """
    settings = dict(dynamic=False) | kwargs
    for anchor in find_stitched_backbone(model).anchors:
        blocks = getattr(anchor, 'blocks', None)
        listed = isinstance(blocks, nn.ModuleList)
        wanted = 'anchors that keep their blocks in a ModuleList, to be compiled'
        check(listed, 'backbone.anchors', type(anchor).__name__, wanted)
        for block in blocks:
            block.compile(**settings)

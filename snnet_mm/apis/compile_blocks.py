"""torch.compile for stitches: block by block, so that switching compiles nothing."""

from __future__ import annotations

from torch import nn

from snnet_mm.models import find_stitched_backbone


def compile_blocks(model: nn.Module, **kwargs) -> None:
    """Compile the blocks of every anchor, in place.

    Compiled as a whole, a model is compiled again for every route. Here the compiler
    sees one block at a time: blocks of the same anchor share what was compiled for the
    first of them, so that all stitches together cost one compilation per anchor and
    input size, at the first call that runs it. Weights and their names stay as they
    are.

    Args:
        model: Any model that holds a stitched backbone.
        **kwargs: Settings of ``torch.compile``. Sizes are static unless it says
            otherwise: the widths of two anchors must not be taken for a size that
            varies.

    Raises:
        ValueError: If there is no stitched backbone, or an anchor keeps its blocks
            elsewhere than in a list ``blocks``.
    """
    settings = dict(dynamic=False) | kwargs
    for anchor in find_stitched_backbone(model).anchors:
        blocks = getattr(anchor, 'blocks', None)
        if not isinstance(blocks, nn.ModuleList):
            raise ValueError(
                f'{type(anchor).__name__} has no list of blocks to compile (option: '
                'compile)'
            )
        for block in blocks:
            block.compile(**settings)

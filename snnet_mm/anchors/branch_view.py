"""An anchor seen as its residual branches."""

from collections.abc import Mapping
from typing import NamedTuple

from .base import Anchor, TokenState
from .branches import Branch


class NetworkStep(NamedTuple):
    """A step of a :class:`BranchView`.

    ``kind`` is that of its branch, or ``'enter'`` for layers between two stages and
    ``'norm'`` for the norm after the last block, which have none.
    """

    block: int
    kind: str
    branch: Branch | None


class BranchView:
    """An anchor that a stitched backbone runs one residual branch at a time.

    It has what a walk needs of an :class:`Anchor`, with branches in place of blocks:
    ``embed``, ``run_block``, ``to_output``, and the width and stride after every step.
    Layers between two stages, and the norm after the last block, are steps of their
    own. The anchor keeps its parameters and their names.

    Args:
        anchor: The anchor.

    Examples:
        >>> from snnet_mm.anchors import PlainViT
        >>> arch = dict(embed_dims=32, depth=2, num_heads=4)
        >>> view = BranchView(PlainViT(arch, img_size=32, final_norm=True))
        >>> [f'{step.block} {step.kind}' for step in view.steps]
        ['0 attention', '0 mlp', '1 attention', '1 mlp', '1 norm']
        >>> view.widths
        (4, 128, 4, 128, 1)
    """

    def __init__(self, anchor: Anchor) -> None:
        self.anchor = anchor
        steps: list[NetworkStep] = []
        for i in range(anchor.depth):
            branches = anchor.branches(i)
            apart = branches[0].kind != 'block'  # else all runs with the block
            if apart and anchor.enters(i):
                steps.append(NetworkStep(i, 'enter', None))
            steps += [NetworkStep(i, branch.kind, branch) for branch in branches]
        if apart and anchor.last_norm is not None:
            steps.append(NetworkStep(anchor.depth - 1, 'norm', None))
        self.steps = tuple(steps)
        self.depth = len(steps)
        self.block_dims = tuple(anchor.block_dims[step.block] for step in steps)
        self.block_strides = tuple(anchor.block_strides[step.block] for step in steps)
        self.num_prefix, self.has_cls = anchor.num_prefix, anchor.has_cls
        # The last step of every block.
        self.ends = tuple({step.block: i for i, step in enumerate(steps)}.values())
        self.out_indices = tuple(self.ends[i] for i in anchor.out_indices)
        self.embed, self.to_output = anchor.embed, anchor.to_output

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of hidden units of every step; 1 where it cannot be narrow."""
        return tuple(1 if u.branch is None else u.branch.units for u in self.steps)

    @property
    def blocks(self) -> tuple[int | None, ...]:
        """Block of every step; None for steps that always run."""
        return tuple(None if u.branch is None else u.block for u in self.steps)

    @property
    def skippable(self) -> tuple[int, ...]:
        """The steps that change neither the width nor the stride.

        A block of one piece at the start of a network with stages is not among them.
        """
        scales = list(zip(self.block_dims, self.block_strides, strict=True))
        found = []
        for i, step in enumerate(self.steps):
            if step.branch is None:
                continue
            begins = i == 0 and len({*scales}) > 1
            changes = begins or (i > 0 and scales[i] != scales[i - 1])
            if step.kind != 'block' or not changes:
                found.append(i)
        return tuple(found)

    def __getitem__(self, i: int) -> Branch | None:
        """Return the branch of step i."""
        return self.steps[i].branch

    def forget(self) -> None:
        """Drop the copies of weights that narrow branches keep."""
        for step in self.steps:
            if step.branch is not None:
                step.branch.forget()

    def cut(self, units: Mapping[int, int]) -> None:
        """Remove what is not needed if steps run with these numbers of units, or 0."""
        for i, number in units.items():
            if self.steps[i].kind == 'block':
                self.anchor.drop_block(self.steps[i].block)
            else:
                self[i].cut(number)

    def run_block(self, state: TokenState, i: int) -> TokenState:
        """Return the state after step i."""
        step = self.steps[i]
        if step.kind == 'block':
            return self.anchor.run_block(state, step.block)
        if step.kind == 'enter':
            return self.anchor.enter(state, step.block)
        if step.kind == 'norm':
            return self.anchor.finish(state)
        return state._replace(tokens=step.branch.run(state.tokens, state.grid))

    def step_of(self, parameter: str) -> int:
        """Return the step that uses a parameter of the anchor.

        -1 stands for what always runs: the embedding, norms of outputs, and what
        several branches of a block share.
        """
        level, _ = self.anchor.layer_depth(parameter)
        block = min(level, self.anchor.depth) - 1
        steps = [i for i, step in enumerate(self.steps) if step.block == block]
        if not steps:
            return -1
        if not self.anchor.in_block(parameter, block):  # norms and layers between
            kind = 'norm' if level > self.anchor.depth else 'enter'
            return next((i for i in steps if self.steps[i].kind == kind), -1)
        name = parameter.removeprefix(f'{self.anchor.block_path(block)}.')
        owners = (i for i in steps if self[i] is not None and self[i].owns(name))
        of_one_piece = self.steps[steps[-1]].kind == 'block'
        return next(owners, steps[-1] if of_one_piece else -1)

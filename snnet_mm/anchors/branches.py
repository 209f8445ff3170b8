"""Residual branches of blocks, and their hidden units.

A block is one or two residual branches ``x + W h(x)``: attention, whose hidden units
are heads, and an MLP, whose hidden units are neurons. A *narrow* branch runs some of
its units, with another output projection ``W``. A family of networks has subclasses of
:class:`Attention` and :class:`MLP`, which specify where its weights are.
"""

from collections.abc import Iterable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .position import Grid, TensorCache
from .vit_block import from_windows, to_windows

# How a tensor is cut to some units: their rows; the rows of every head, with those of
# queries, keys and values apart; or columns, one for each head.
ROWS, QKV_ROWS, COLUMNS = 'rows', 'qkv rows', 'columns'


class Branch:
    """One step of a network between two states: here, a block of one piece.

    Args:
        block: The block.
        cuts: How tensors are cut to some units, by name in the block.

    Attributes:
        kind: ``'block'``, ``'attention'`` or ``'mlp'``.
        units: Number of hidden units; 1 if the branch is run whole or skipped.
        group: Hidden channels per unit.
    """

    kind = 'block'
    units = group = 1
    # Names in the block that belong to this branch alone, and those among them that
    # come after the hidden units, which the projection of a narrow branch replaces.
    parts: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def __init__(self, block: nn.Module, cuts: Mapping[str, str] | None = None) -> None:
        self.block = block
        cuts = (cuts or {}).items()
        self.cuts = {k: how for k, how in cuts if isinstance(_find(block, k), Tensor)}
        self._kept = TensorCache()

    def fits(self) -> bool:
        """Return whether this block computes what the family specifies."""
        return True

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        """Run the whole branch, ``x + branch(x)``, by the block's own modules.

        ``x`` are tokens ``(B, L, C)`` of a grid, prefix tokens first.
        """
        raise AssertionError('a block of one piece runs by its anchor')

    def hidden(self, x: Tensor, grid: Grid, order: Tensor | None, units: int) -> Tensor:
        """Return hidden activations ``(B, L, units * group)`` of tokens ``(B, L, C)``.

        The first ``units`` of ``order``, int ``(all units,)``, run. ``order`` is None
        in a block that is cut already; see :meth:`cut`.
        """
        raise AssertionError('a block of one piece has no hidden units')

    def tensors(self, order: Tensor, units: int) -> dict[str, Tensor]:
        """Return the tensors of the first units in order, by name in the block."""
        return {name: self._read(name, order, units) for name in self.cuts}

    def forget(self) -> None:
        """Drop all kept copies of weights; :class:`TensorCache` sees most changes."""
        self._kept.train(False)

    def owns(self, name: str) -> bool:
        """Return whether a parameter of the block belongs to this branch alone."""
        return _within(name, self.parts)

    def num_parameters(self, order: Tensor, units: int) -> int:
        """Return how many parameters compute the hidden activations of some units."""
        cut = sum(value.numel() for value in self.tensors(order, units).values())
        return cut + sum(
            parameter.numel()
            for name, parameter in self.block.named_parameters()
            if self.owns(name) and not _within(name, (*self.outputs, *self.cuts))
        )

    @torch.no_grad()
    def cut(self, units: int) -> None:
        """Remove all that the branch with this number of units does not need.

        What remains has the names and shapes of :meth:`tensors`; 0 removes the branch.
        Afterwards only :meth:`hidden` runs.
        """
        device = next(self.block.parameters()).device
        order = torch.arange(self.units, device=device)
        changed = dict.fromkeys(self.outputs if units else self.parts)
        if units:
            changed |= self.tensors(order, units)
        for name, value in changed.items():
            path, _, last = name.rpartition('.')
            owner = _find(self.block, path)
            if value is not None:
                setattr(owner, last, nn.Parameter(value.clone()))
            elif isinstance(old := getattr(owner, last, None), nn.Module):
                setattr(owner, last, nn.Identity())
            elif old is not None:
                setattr(owner, last, None)

    def _sorted(self, name: str, order: Tensor | None) -> Tensor | None:
        """Return a tensor of the block with its units in order: one copy for all."""
        value = _find(self.block, name) if name in self.cuts else None
        if value is None or order is None:
            return value
        make = partial(_in_order, value, order, self.cuts[name])
        return self._kept.get(name, _version_of(order), value, make)

    def _read(self, name: str, order: Tensor | None, units: int) -> Tensor | None:
        value = self._sorted(name, order)
        if value is None or order is None:
            return value
        if self.cuts[name] == COLUMNS:
            return value[:, :units]
        return value[: len(value) // self.units * units]


class Attention(Branch):
    """A branch of self-attention, ``x + attention(norm(x))``; units are heads."""

    kind = 'attention'
    attn = 'attn'  # path of the module that has the heads
    qkv = 'qkv.'  # prefix there of the weight and bias of queries, keys and values
    proj = 'proj'
    table = ''  # name there of a table with a column for each head
    parts, outputs = ('norm1', 'ln1', 'attn', 'ls1', 'gamma_1'), ('ls1', 'gamma_1')

    def __init__(self, block: nn.Module) -> None:
        hows = {f'{self.qkv}weight': QKV_ROWS, f'{self.qkv}bias': QKV_ROWS}
        hows |= {'q_bias': ROWS, 'v_bias': ROWS, self.table: COLUMNS}
        super().__init__(block, {f'{self.attn}.{k}': how for k, how in hows.items()})
        self.outputs = (f'{self.attn}.{self.proj}', *self.outputs)
        self.heads_of = block.get_submodule(self.attn)
        proj, heads = getattr(self.heads_of, self.proj), self.heads_of.num_heads
        qkv = getattr(self.heads_of, 'qkv', proj)
        if _is_plain(proj) and _is_plain(qkv) and self.fits():
            self.units, self.group = heads, proj.in_features // heads

    def enter(self, x: Tensor) -> Tensor:
        """Return what the attention reads of tokens ``(B, L, C)``."""
        return self.block.norm1(x)

    def windows(self, grid: Grid) -> tuple[int, int]:
        """Return the side and the shift of the windows; a side of 0 for no windows."""
        return 0, 0

    def keys(self, normed: Tensor, grid: Grid) -> Tensor:
        """Return the tokens of keys and values; those of queries are given."""
        return normed

    def bias_of(self, table: Tensor, grid: Grid) -> Tensor:
        """Return the bias ``(1, heads, L, L)`` that a table adds to the scores."""
        return table[self.heads_of.relative_position_index].permute(2, 0, 1)[None]

    def scores(
        self, grid: Grid, q: Tensor, order: Tensor | None, units: int
    ) -> Tensor | None:
        """Return what is added to the scores of queries ``(B, heads, L, group)``."""
        table = self._sorted(f'{self.attn}.{self.table}', order)
        if table is None:
            return None
        key = grid if order is None else (*grid, *_version_of(order))
        make = partial(self.bias_of, table, grid)
        return self._kept.get('scores', key, table, make)[:, :units]

    def hidden(self, x: Tensor, grid: Grid, order: Tensor | None, units: int) -> Tensor:
        names = f'{self.qkv}weight', f'{self.qkv}bias', 'q_bias', 'v_bias'
        tensors = (self._read(f'{self.attn}.{name}', order, units) for name in names)
        weight, offset, of_q, of_v = tensors
        if of_q is not None:  # keys have none
            parts = of_q, torch.zeros_like(of_q), of_v
            by_head = [part.unflatten(0, (-1, self.group)) for part in parts]
            offset = torch.stack(by_head, 1).flatten()
        normed = self.enter(x)
        side, shift = self.windows(grid)
        if side:
            normed = to_windows(normed, grid, side, shift)
        q, k, v = self._project(normed, self.keys(normed, grid), weight, offset)
        if hasattr(self.heads_of, 'q_norm'):
            q, k = self.heads_of.q_norm(q), self.heads_of.k_norm(k)
        added = self.scores((side, side) if side else grid, q, order, units)
        if shift:
            apart = _apart(grid, side, shift, q)[:, None]
            apart = apart.repeat(q.shape[0] // apart.shape[0], 1, 1, 1)
            added = apart if added is None else added + apart
        scale = getattr(self.heads_of, 'scale', None)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale)
        x = x.transpose(1, 2).flatten(2)
        return from_windows(x, grid, side, shift) if side else x

    def _project(
        self, queries: Tensor, keys: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values ``(B, heads, L, group)``."""
        shape = (-1, 3, self.group)
        if keys is queries:
            qkv = F.linear(queries, weight, bias).unflatten(-1, shape)
            return qkv.permute(3, 0, 2, 1, 4).unbind()
        weights = weight.unflatten(0, shape).unbind(1)
        biases = [None] * 3 if bias is None else bias.unflatten(0, shape).unbind(1)
        return tuple(
            F.linear(x, w.flatten(0, 1), b if b is None else b.flatten())
            .unflatten(-1, (-1, self.group))
            .transpose(1, 2)
            for x, w, b in zip((queries, keys, keys), weights, biases, strict=True)
        )


class MLP(Branch):
    """A branch ``x + fc2(act(fc1(norm(x))))``; units are neurons."""

    kind = 'mlp'
    fc1, act, fc2 = 'mlp.fc1', 'mlp.act', 'mlp.fc2'
    follows: tuple[str, ...] = ()  # more tensors that have a row for each unit
    parts = ('norm2', 'ln2', 'mlp', 'ffn', 'ls2', 'gamma_2')
    outputs = ('ls2', 'gamma_2', 'ffn.gamma2')

    def __init__(self, block: nn.Module) -> None:
        names = f'{self.fc1}.weight', f'{self.fc1}.bias', *self.follows
        super().__init__(block, dict.fromkeys(names, ROWS))
        self.outputs = (self.fc2, *self.outputs)
        first, last = (_find(block, name) for name in (self.fc1, self.fc2))
        if _is_plain(first) and _is_plain(last) and self.fits():
            units = first.weight.shape[0]
            self.units = units if units == last.weight.shape[1] else 1

    def enter(self, x: Tensor, grid: Grid) -> Tensor:
        """Return the input of ``fc1`` for tokens ``(B, L, C)``."""
        return self.block.norm2(x)

    def leave(self, h: Tensor, grid: Grid, *follows: Tensor | None) -> Tensor:
        """Return the input of ``fc2`` from the output of ``fc1``."""
        return _find(self.block, self.act)(h)

    def hidden(self, x: Tensor, grid: Grid, order: Tensor | None, units: int) -> Tensor:
        names = f'{self.fc1}.weight', f'{self.fc1}.bias', *self.follows
        weight, bias, *follows = (self._read(name, order, units) for name in names)
        h = F.linear(self.enter(x, grid), weight.flatten(1), bias)
        return self.leave(h, grid, *follows)


# Classes of the branches of a block in order, by the class that has its ``forward``.
BranchKinds = Mapping[str, tuple[type[Branch], ...]]


def owner_of_forward(module: nn.Module) -> str:
    """Return the class that has the ``forward`` of a module: ``'package.Class'``."""
    owner = next(c for c in type(module).__mro__ if 'forward' in vars(c))
    return f'{owner.__module__.partition(".")[0]}.{owner.__name__}'


def _find(block: nn.Module, name: str) -> nn.Module | Tensor | None:
    """Return a part of a block by its path; the block itself for no path."""
    value = block
    for part in filter(None, name.split('.')):
        value = getattr(value, part, None)
    return value


def _version_of(order: Tensor) -> tuple:
    """Return a key that changes with the content of an order."""
    return order.data_ptr(), None if order.is_inference() else order._version


def _within(name: str, parts: Iterable[str]) -> bool:
    """Return whether a parameter belongs to some parts of a block."""
    return any(f'{name}.'.startswith(f'{part}.') for part in parts)


def _is_plain(layer: nn.Module | None) -> bool:
    """Return whether a layer is linear or a 1x1 convolution, without an update."""
    linear = isinstance(layer, nn.Linear | nn.Conv2d)
    return linear and not hasattr(layer, 'lora_A')


def _in_order(value: Tensor, order: Tensor, how: str) -> Tensor:
    """Return a tensor with its units in order; the three rows of a head together."""
    number = len(order)
    if how == COLUMNS:
        return value[:, order]
    if how == QKV_ROWS:
        by_head = value.unflatten(0, (3, number, -1)).transpose(0, 1)
        return by_head[order].flatten(0, 2)
    return value.unflatten(0, (number, -1))[order].flatten(0, 1)


def _apart(grid: Grid, side: int, shift: int, like: Tensor) -> Tensor:
    """Return -100 for tokens that only the shift brought together, else 0.

    The result has shape ``(windows, side * side, side * side)``.
    """
    sides = [n + -n % side for n in grid]
    lines = [torch.zeros(n, device=like.device, dtype=like.dtype) for n in sides]
    for line in lines:
        line[-side:-shift], line[-shift:] = 1, 2
    regions = (3 * lines[0][:, None] + lines[1]).flatten()[None, :, None]
    regions = to_windows(regions, tuple(sides), side)
    return -100.0 * (regions != regions.transpose(1, 2)).to(like.dtype)

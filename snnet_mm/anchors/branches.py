"""Residual branches of blocks, and their hidden units.

A block is one or two residual branches ``x + W h(x)``: attention, whose hidden units
are heads, and an MLP, whose hidden units are neurons. A *narrow* branch runs some of
its units, with another output projection ``W``. A family of networks has subclasses of
:class:`AttentionBranch` and :class:`MLP`, which specify where its weights are.

A branch that normalises its hidden activations over all channels cannot be narrow.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .position import Grid, TensorCache
from .windows import Windows

# How a tensor is cut to some units: to their rows in each of so many parts, as of
# queries, keys and values, or to their columns.
ROWS, GATE_ROWS, QKV_ROWS = 1, 2, 3
COLUMNS = 0


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

    def __init__(self, block: nn.Module, cuts: Mapping[str, int] | None = None) -> None:
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
        return self._kept.get(name, (), [value, order], make)

    def _read(self, name: str, order: Tensor | None, units: int) -> Tensor | None:
        value = self._sorted(name, order)
        if value is None or order is None:
            return value
        if self.cuts[name] == COLUMNS:
            return value[:, :units]
        return value[: len(value) // self.units * units]


class AttentionBranch(Branch):
    """A branch of self-attention, ``x + attention(norm(x))``; units are heads."""

    kind = 'attention'
    attn = 'attn'  # path of the module that has the heads
    # Prefixes there of weights and biases: of one layer, or of three.
    qkv: tuple[str, ...] = ('qkv.',)
    proj = 'proj'
    table = ''  # name there of a table with a column for each head
    parts, outputs = ('norm1', 'ln1', 'attn', 'ls1', 'gamma_1'), ('ls1', 'gamma_1')

    def __init__(self, block: nn.Module) -> None:
        rows = QKV_ROWS if len(self.qkv) == 1 else ROWS
        hows = {f'{p}{name}': rows for p in self.qkv for name in ('weight', 'bias')}
        hows |= {'q_bias': ROWS, 'v_bias': ROWS, self.table: COLUMNS}
        super().__init__(block, {f'{self.attn}.{k}': how for k, how in hows.items()})
        self.outputs = (f'{self.attn}.{self.proj}', *self.outputs)
        self.heads_of = block.get_submodule(self.attn)
        proj, heads = getattr(self.heads_of, self.proj), self.heads_of.num_heads
        layers = [p.removesuffix('.') for p in self.qkv if p.endswith('.')]
        layers = [proj, *(getattr(self.heads_of, name) for name in layers)]
        if all(map(_is_plain, layers)) and self.fits():
            self.units, self.group = heads, proj.in_features // heads

    def enter(self, x: Tensor) -> Tensor:
        """Return what the attention reads of tokens ``(B, L, C)``."""
        return self.block.norm1(x)

    def windows(self, grid: Grid) -> Windows | None:
        """Return the windows that the attention is limited to, if any."""
        return None

    def keys(self, normed: Tensor, grid: Grid) -> Tensor:
        """Return the tokens of keys and values; those of queries are given."""
        return normed

    def rotated(self, x: Tensor, grid: Grid) -> Tensor:
        """Return queries or keys ``(B, heads, L, group)`` with their positions."""
        return x

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
        weights = [table] if order is None else [table, order]
        make = partial(self.bias_of, table, grid)
        return self._kept.get('scores', grid, weights, make)[:, :units]

    def hidden(self, x: Tensor, grid: Grid, order: Tensor | None, units: int) -> Tensor:
        normed, windows = self.enter(x), self.windows(grid)
        if windows is not None:
            normed = windows.split(normed, grid)
        layers = self._layers(order, units)
        q, k, v = self._project(normed, self.keys(normed, grid), layers)
        if hasattr(self.heads_of, 'q_norm'):
            q, k = self.heads_of.q_norm(q), self.heads_of.k_norm(k)
        q, k = self.rotated(q, grid), self.rotated(k, grid)
        side = grid if windows is None else windows.size
        added = self.scores(side, q, order, units)
        apart = None if windows is None else windows.apart(grid, q)
        if apart is not None:
            apart = apart[:, None].repeat(q.shape[0] // apart.shape[0], 1, 1, 1)
            added = apart if added is None else added + apart
        scale = getattr(self.heads_of, 'scale', None)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale)
        x = x.transpose(1, 2).flatten(2)
        return x if windows is None else windows.merge(x, grid)

    def _layers(
        self, order: Tensor | None, units: int
    ) -> list[tuple[Tensor, Tensor | None]]:
        """Return weights and biases: of one layer, or of queries, keys and values."""

        def read(name: str) -> Tensor | None:
            return self._read(f'{self.attn}.{name}', order, units)

        layers = [(read(f'{p}weight'), read(f'{p}bias')) for p in self.qkv]
        of_q, of_v = read('q_bias'), read('v_bias')
        if of_q is not None:  # keys have none
            parts = of_q, torch.zeros_like(of_q), of_v
            by_head = [part.unflatten(0, (-1, self.group)) for part in parts]
            layers = [(layers[0][0], torch.stack(by_head, 1).flatten())]
        return layers

    def _project(
        self,
        queries: Tensor,
        keys: Tensor,
        layers: list[tuple[Tensor, Tensor | None]],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values ``(B, heads, L, group)``."""
        shape = (-1, 3, self.group)
        if len(layers) == 1:
            ((weight, bias),) = layers
            if keys is queries:
                qkv = F.linear(queries, weight, bias).unflatten(-1, shape)
                return qkv.permute(3, 0, 2, 1, 4).unbind()
            biases = [None] * 3
            if bias is not None:
                biases = [b.flatten() for b in bias.unflatten(0, shape).unbind(1)]
            weights = weight.unflatten(0, shape).unbind(1)
            layers = zip((w.flatten(0, 1) for w in weights), biases, strict=True)
        return tuple(
            F.linear(x, *layer).unflatten(-1, (-1, self.group)).transpose(1, 2)
            for x, layer in zip((queries, keys, keys), layers, strict=True)
        )


class Layout(NamedTuple):
    """The parts of an MLP, by their paths in its module.

    Attributes:
        fc1: The input layer.
        fc2: The output layer.
        act: The activation, or a function.
        factor: Of a gated MLP, ``fc2(act(fc1(x)) * factor(x))``, the other input layer.
        packed: Whether ``fc1`` has the rows of both input layers, those of ``factor``
            last.
        norm: A norm of the hidden activations, if there may be one.
        follows: Further tensors that have a row for each unit.
    """

    fc1: str = 'fc1'
    fc2: str = 'fc2'
    act: str | Callable[[Tensor], Tensor] = 'act'
    factor: str = ''
    packed: bool = False
    norm: str = ''
    follows: tuple[str, ...] = ()


# By the class that has the ``forward`` of the MLP.
LAYOUTS = {
    'mmcv.FFN': Layout('layers.0.0', 'layers.1', 'layers.0.1'),
    'mmpretrain.ConvNeXtBlock': Layout(
        'pointwise_conv1', 'pointwise_conv2', follows=('grn.gamma', 'grn.beta')
    ),
    'mmpretrain.SwiGLUFFN': Layout('w12', 'w3', F.silu, packed=True, norm='norm'),
    'mmseg.MixFFN': Layout(
        *('layers.0', 'layers.4', 'layers.2'),
        follows=('layers.1.weight', 'layers.1.bias'),
    ),
    'timm.GlobalResponseNormMlp': Layout(follows=('grn.weight', 'grn.bias')),
    'timm.GluMlp': Layout(packed=True, norm='norm'),
    'timm.Mlp': Layout(norm='norm'),
    'timm.SwiGLU': Layout('fc1_g', factor='fc1_x', norm='norm'),
    'torch.Sequential': Layout(),
}


class MLP(Branch):
    """A branch ``x + fc2(act(fc1(norm(x))))``; units are neurons.

    Those of a gated MLP are neurons of both input layers.
    """

    kind = 'mlp'
    mlp = 'mlp'  # path of the module that has the neurons
    layout: Layout | None = None  # default: that of the module's class, if known
    parts = ('norm2', 'ln2', 'mlp', 'ffn', 'ls2', 'gamma_2')
    outputs = ('ls2', 'gamma_2', 'ffn.gamma2')

    def __init__(self, block: nn.Module) -> None:
        self.neurons_of = mlp = block.get_submodule(self.mlp)
        self.layout = self.layout or LAYOUTS.get(owner_of_forward(mlp))
        if self.layout is None:
            super().__init__(block)
            return
        fc1, fc2, _, factor, packed, norm, follows = self.layout
        layers = [layer for layer in (fc1, factor) if layer]
        self._read_from = [f'{n}.{k}' for n in layers for k in ('weight', 'bias')]
        cuts = dict.fromkeys((*self._read_from, *follows), ROWS)
        if packed:
            cuts |= dict.fromkeys(self._read_from, GATE_ROWS)
        super().__init__(block, {self._path(name): how for name, how in cuts.items()})
        self.outputs = (self._path(fc2), *self.outputs)
        *first, last = (_find(mlp, name) for name in (*layers, fc2))
        plain = all(map(_is_plain, (*first, last)))
        plain = plain and (not norm or isinstance(_find(mlp, norm), nn.Identity))
        if plain and self.fits():
            units = len(first[0].weight) // (GATE_ROWS if packed else ROWS)
            self.units = units if units == last.weight.shape[1] else 1

    def enter(self, x: Tensor, grid: Grid) -> Tensor:
        """Return the input of ``fc1`` for tokens ``(B, L, C)``."""
        return self.block.norm2(x)

    def leave(self, h: Tensor, grid: Grid, *follows: Tensor | None) -> Tensor:
        """Return the hidden activations from the output of ``fc1``."""
        act = self.layout.act
        return _find(self.neurons_of, act)(h) if isinstance(act, str) else act(h)

    def hidden(self, x: Tensor, grid: Grid, order: Tensor | None, units: int) -> Tensor:
        names = *self._read_from, *self.layout.follows
        weight, bias, *more = (self._read(self._path(n), order, units) for n in names)
        x, factor = self.enter(x, grid), None
        h = F.linear(x, weight.flatten(1), bias)
        if self.layout.factor:
            factor, more = F.linear(x, *more[:2]), more[2:]
        if self.layout.packed:  # contiguous, as activations are slow otherwise
            h, factor = h.unflatten(-1, (-1, 2)).movedim(-1, 0).contiguous().unbind()
        h = self.leave(h, grid, *more)
        return h if factor is None else h * factor

    def _path(self, name: str) -> str:
        return f'{self.mlp}.{name}'.lstrip('.')


class ConvNeXtMLP(MLP):
    """A block of ConvNeXt: one branch, with a convolution before it."""

    conv = ''  # name of the convolution

    def normed(self, x: Tensor) -> Tensor:
        """Return the normalised tokens ``(B, L, C)`` of a map."""
        return self.block.norm(x.flatten(2).transpose(1, 2))

    def enter(self, x: Tensor, grid: Grid) -> Tensor:
        x = x.transpose(1, 2).unflatten(2, grid)
        return self.normed(getattr(self.block, self.conv)(x))

    def leave(self, h: Tensor, grid: Grid, *follows: Tensor | None) -> Tensor:
        h, (gamma, beta) = super().leave(h, grid), follows or (None, None)
        if gamma is None:
            return h
        norm = h.norm(p=2, dim=1, keepdim=True)
        eps = self.neurons_of.grn.eps
        return gamma * (h * (norm / (norm.mean(dim=-1, keepdim=True) + eps))) + beta + h


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


def _within(name: str, parts: Iterable[str]) -> bool:
    """Return whether a parameter belongs to some parts of a block."""
    return any(f'{name}.'.startswith(f'{part}.') for part in parts)


def _is_plain(layer: nn.Module | None) -> bool:
    """Return whether a layer is linear or a 1x1 convolution, without an update."""
    linear = isinstance(layer, nn.Linear | nn.Conv2d)
    return linear and not hasattr(layer, 'lora_A')


def _in_order(value: Tensor, order: Tensor, how: int) -> Tensor:
    """Return a tensor with its units in order, the rows of each together."""
    if how == COLUMNS:
        return value[:, order]
    by_unit = value.unflatten(0, (how, len(order), -1)).transpose(0, 1)
    return by_unit[order].flatten(0, 2)

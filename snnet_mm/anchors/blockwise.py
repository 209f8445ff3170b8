"""Networks of others as anchors: their own modules, run block by block."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check, refusal

from .base import Anchor, BackboneMap, TokenState
from .branches import BranchKinds, owner_of_forward

Modules = Sequence[nn.Module]


def run_with_grid(net: nn.Module, block: nn.Module, state: TokenState) -> TokenState:
    """Run a block that takes tokens and their grid."""
    return state._replace(tokens=block(state.tokens, state.grid))


def run_on_map(net: nn.Module, block: nn.Module, state: TokenState) -> TokenState:
    """Run a block that takes a map."""
    return TokenState.of_map(block(map_of(state)))


def map_of(state: TokenState) -> Tensor:
    """Return the patches of a state as a contiguous map ``(B, C, H, W)``.

    The network's own maps are contiguous, too, so outputs are equal bit for bit.
    """
    return state.as_map().contiguous()


@dataclass(frozen=True)
class Family:
    """Networks that anchors of one type run: a row of the table of all of them.

    Attributes:
        name: Registered type of the anchors.
        mirrors: Networks whose ``forward`` the anchors mirror, as ``'package.Class'``.
    """

    name: str
    mirrors: tuple[str, ...]


@dataclass(frozen=True)
class NetworkFamily(Family):
    """The parts of the networks of one family, in the order in which they run.

    All functions take the network first. A stage is its number; a place is an index in
    the network's ``out_indices``.

    Attributes:
        stages: Returns the blocks of every stage.
        scales: Returns the widths and the strides of the stages.
        embed: Returns the state before block 0, from images ``(B, 3, H, W)``.
        run: Runs a block itself.
        output: Returns the network's output for a place, from the state.
        enter: Runs the layers between the previous stage and a stage, if there are any.
        norm: Returns the norm after the last block, or None.
        num_prefix: Returns the number of tokens before the patches.
        outputs_prefix: Returns whether the network's outputs contain prefix tokens.
        branches: Returns the branches of the classes of blocks that have any.
        by_block: Whether ``out_indices`` of the network are blocks, not stages.
        has_output_layers: See :class:`Anchor`.
        enter_modules: Returns the modules before the first block of a stage after the
            first. With ``leave_modules``, it names all modules that ``enter`` runs.
        first_modules: Returns the modules that ``run`` adds to the first block of a
            stage.
        leave_modules: Returns the modules after the last block of a stage.
        output_modules: Returns the modules of outputs alone, besides ``norm``.

    Layer-wise decay gives ``enter_modules`` and ``first_modules`` the level of the
    first block, ``leave_modules`` that of the last one, ``norm`` and ``output_modules``
    the last level, and all other modules that of the embedding.
    """

    stages: Callable[[nn.Module], list[Modules]]
    scales: Callable[[nn.Module], tuple[list[int], list[int]]]
    embed: Callable[[nn.Module, Tensor], TokenState]
    output: Callable[[nn.Module, TokenState, int], BackboneMap | list[Tensor]]
    run: Callable[[nn.Module, nn.Module, TokenState], TokenState] = run_with_grid
    enter: Callable[[nn.Module, TokenState, int], TokenState] | None = None
    norm: Callable[[nn.Module], nn.Module | None] = lambda net: None
    num_prefix: Callable[[nn.Module], int] = lambda net: 0
    outputs_prefix: Callable[[nn.Module], bool] = lambda net: False
    branches: Callable[[nn.Module], BranchKinds] = lambda net: {}
    by_block: bool = False
    has_output_layers: bool = False
    enter_modules: Callable[[nn.Module, int], Modules] | None = None
    first_modules: Callable[[nn.Module, int], Modules] = lambda net, stage: ()
    leave_modules: Callable[[nn.Module, int], Modules] = lambda net, stage: ()
    output_modules: Callable[[nn.Module], Modules] = lambda net: ()

    def __post_init__(self) -> None:
        told = (self.enter is None) == (self.enter_modules is None)
        key, value = f'{self.name}.enter_modules', self.enter_modules
        check(told, key, value, 'a function, if and only if enter is one')


class BlockwiseAnchor(Anchor):
    """A network of another package, run one block at a time.

    The network is built from its own config and keeps its parameter names, under
    ``net.``. Blocks run the same operations in the same order as its ``forward``, so
    that outputs are equal bit for bit. Layers between two stages run with the first
    block of the later stage.

    Args:
        net: Config of the backbone, or the backbone.
        parts: Its family.
        kept_blocks, embedding: See :class:`Anchor`.
    """

    def __init__(
        self,
        net: dict | nn.Module,
        parts: NetworkFamily,
        kept_blocks: Collection[int] | None = None,
        embedding: bool = True,
        init_cfg: dict | None = None,
    ) -> None:
        net = MODELS.build(dict(net)) if isinstance(net, dict) else net
        family = family_of(net).name
        check(parts.name == family, 'backbone.type', parts.name, f"type='{family}'")
        with as_described(family, type(net).__name__):
            stages, num_prefix = parts.stages(net), parts.num_prefix(net)
            dims, strides = parts.scales(net)
        super().__init__(
            [d for d, stage in zip(dims, stages, strict=True) for _ in stage],
            [s for s, stage in zip(strides, stages, strict=True) for _ in stage],
            *(num_prefix, num_prefix > 0),
            kept_blocks=kept_blocks,
            embedding=embedding,
            init_cfg=init_cfg,
        )
        self.net, self.parts = net, parts
        self.has_output_layers = parts.has_output_layers
        self.outputs_prefix = parts.outputs_prefix(net)
        self.branch_kinds = parts.branches(net)
        # Stage of every block, and the first and the last block of every stage.
        self._stage_of = [s for s, blocks in enumerate(stages) for _ in blocks]
        self._firsts = [self._stage_of.index(s) for s in range(len(stages))]
        lasts = [*(first - 1 for first in self._firsts[1:]), self.depth - 1]
        self.out_indices = tuple(
            place % self.depth if parts.by_block else lasts[place]
            for place in getattr(net, 'out_indices', range(len(stages)))
        )
        names = {id(m): name for name, m in self.named_modules()}
        blocks = [block for stage in stages for block in stage]
        self._paths = [names[id(block)] for block in blocks]
        at_end = *parts.output_modules(net), parts.norm(net)
        runs = [*enumerate([block] for block in blocks), (self.depth, at_end)]
        for s, (first, last) in enumerate(zip(self._firsts, lasts, strict=True)):
            if parts.enter_modules is not None and s:
                runs.append((first, parts.enter_modules(net, s)))
            runs.append((first, parts.first_modules(net, s)))
            runs.append((last, parts.leave_modules(net, s)))
        # Levels of layer decay, by prefix of parameters; those of others are 0.
        self._levels = {
            f'{names[id(module)]}.': i + 1
            for i, modules in runs
            for module in modules
            if module is not None
        }
        for i in {*range(self.depth)} - self.kept_blocks:
            self.drop_block(i)

    def embed(self, images: Tensor) -> TokenState:
        return self.parts.embed(self.net, images)

    def enters(self, i: int) -> bool:
        return i > 0 and i in self._firsts

    def enter(self, state: TokenState, i: int) -> TokenState:
        if self.parts.enter is None:
            return state
        return self.parts.enter(self.net, state, self._stage_of[i])

    def run_block(self, state: TokenState, i: int) -> TokenState:
        if self.enters(i):
            state = self.enter(state, i)
        block = self.get_submodule(self._paths[i])
        state = self.parts.run(self.net, block, state)
        return self.finish(state) if i == self.depth - 1 else state

    @property
    def last_norm(self) -> nn.Module | None:
        return self.parts.norm(self.net)

    def block_path(self, i: int) -> str:
        return self._paths[i]

    def to_output(
        self, state: TokenState, with_cls: bool = False, place: int = -1
    ) -> BackboneMap | list[Tensor]:
        return self.parts.output(self.net, state, place)

    def to_feature_map(self, state: TokenState) -> Tensor:
        return self.to_output(state)

    def fix_input_size(self, size: tuple[int, int]) -> None:
        """No-op: mm's networks resample in every forward."""

    def layer_depth(self, param_name: str) -> tuple[int, int]:
        found = (v for k, v in self._levels.items() if param_name.startswith(k))
        return next(found, 0), self.depth + 2

    def init_weights(self) -> None:
        super(Anchor, self).init_weights()


# Families by the networks that they mirror; see :func:`register_family`.
MIRRORED: dict[str, Family] = {}
Kind = TypeVar('Kind', bound=Family)


def register_family(family: Family) -> None:
    """Add a family to the table of all networks that can be anchors.

    That of a :class:`NetworkFamily` also registers the type of its anchors.
    """
    if isinstance(family, NetworkFamily):

        def build(net: dict | nn.Module, **kwargs) -> BlockwiseAnchor:
            return BlockwiseAnchor(net, family, **kwargs)

        build.__name__ = build.__qualname__ = family.name
        MODELS.register_module(family.name, module=build)
    MIRRORED.update(dict.fromkeys(family.mirrors, family))


@contextmanager
def as_described(name: str, value: str, key: str = 'model.backbone.type') -> Iterator:
    """Raise a ValueError if the parts of a network are not where its row expects them.

    Args:
        name: Type of the anchor.
        value: Name of the network.
        key: Config key that sets it.
    """
    try:
        yield
    except AttributeError as error:
        expected = f"a network with the parts of the row '{name}' of the table of "
        raise refusal(key, value, f'{expected}families: {error}') from error


def family_of(
    net: nn.Module,
    kind: type[Kind] = NetworkFamily,
    key: str = 'model.backbone.type',
    name: str | None = None,
) -> Kind:
    """Return the family of a kind that mirrors the ``forward`` of a network.

    Args:
        net: The network.
        kind: Type of the row.
        key: Config key that sets the network.
        name: Name of the network there. Default: its class.

    Raises:
        ValueError: If there is none; the message lists the supported networks.
    """
    owner = owner_of_forward(net)
    family = MIRRORED.get(owner)
    if type(family) is not kind:
        known = sorted(n for n, f in MIRRORED.items() if type(f) is kind)
        expected = 'an anchor of snnet_mm, or ' if kind is NetworkFamily else ''
        expected += f'a network with the forward of one of {", ".join(known)}; this is '
        expected += owner + (f", for type='{family.name}'" if family else '')
        expected += '; docs/how_to/extending.md says how to register another'
        raise refusal(key, name or type(net).__name__, expected)
    return family


def image_channels(model: nn.Module) -> int:
    """Return the number of channels of the images that a model takes.

    The first convolution of the anchors, or of a backbone that :func:`family_of`
    supports, determines it. Other networks take as many channels as the data
    preprocessor has means, or 3.
    """
    parts = [m for m in model.modules() if isinstance(m, Anchor) and m.has_embedding]
    backbone = getattr(model, 'backbone', None)
    if backbone is not None and owner_of_forward(backbone) in MIRRORED:
        parts.append(backbone)
    for module in (module for part in parts for module in part.modules()):
        if isinstance(module, nn.Conv2d):
            return module.in_channels
    mean = getattr(getattr(model, 'data_preprocessor', None), 'mean', None)
    return len(mean) if mean is not None and len(mean) > 1 else 3

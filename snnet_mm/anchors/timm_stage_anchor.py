"""Staged timm networks as anchors; see ``docs/how_to/anchors.md``."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise

from mmengine.registry import MODELS
from mmengine.utils import to_2tuple
from torch import Tensor, nn

from snnet_mm.utils import check
from snnet_mm.utils.timm_models import (
    check_model_args,
    convert_timm_weights,
    create_timm_model,
    has_fixed_size,
    timm_init_cfg,
)

from .base import Anchor, TokenState
from .blockwise import Family, as_described, family_of, register_family
from .branches import BranchKinds
from .position import Grid, resize_pos_embed
from .pretrained import Weights
from .timm_branches import TimmConvNeXtMLP, TimmMLP, TimmSwinAttention
from .timm_internals import accept_any_size, fix_mask, forget_biases

# Arguments that the anchor sets itself.
_OWN_KEYS = {'pretrained', 'img_size', 'drop_path_rate', 'features_only'}
# Derived buffers that old files contain.
_DERIVED = ('relative_position_index', 'attn_mask', 'attention_bias_idxs')


@dataclass
class NetworkParts:
    """A network split into a stem and the blocks of its stages."""

    stem: nn.Module  # maps images to the input of block 0, 'NCHW' if layout is 'NLC'
    stages: list[list[nn.Module]]  # blocks of every stage
    layout: str = 'NCHW'  # input layout of blocks: 'NCHW', 'NHWC' or 'NLC' (tokens)
    one_size: bool = False  # whether images must have one size
    widths: list[int] | None = None  # after every block, if they vary within a stage
    # Linear layers of a block that low-rank updates and biases of stitches apply to.
    linear: tuple[str, ...] = ()


class Wrapped(nn.Module):
    """A module of a network in another layout: returns ``call(block, x)``."""

    def __init__(
        self, block: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.block, self.call = block, call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.block, x)


def _swin(net: nn.Module) -> NetworkParts:
    accept_any_size(net)
    stages = [downsampling_first(s.downsample, s.blocks) for s in net.layers]
    return NetworkParts(net.patch_embed, stages, layout='NHWC')


def _resnet(net: nn.Module) -> NetworkParts:
    names = ('conv1', 'bn1', 'act1', 'maxpool')
    stem = nn.Sequential(OrderedDict((name, getattr(net, name)) for name in names))
    stages = [net.layer1, net.layer2, net.layer3, net.layer4]
    return NetworkParts(stem, [list(stage) for stage in stages])


def _convnext(net: nn.Module) -> NetworkParts:
    stages = [downsampling_first(s.downsample, s.blocks) for s in net.stages]
    # Some variants have 1x1 convolutions instead of linear layers.
    pointwise = isinstance(net.stages[-1].blocks[-1].mlp.fc1, nn.Linear)
    linear = ('mlp.fc1', 'mlp.fc2') if pointwise else ()
    return NetworkParts(net.stem, stages, linear=linear)


def _levit(net: nn.Module) -> NetworkParts:
    forget_biases(net)
    layout = 'NCHW' if net.use_conv else 'NLC'
    stages = [downsampling_first(s.downsample, s.blocks) for s in net.stages]
    return NetworkParts(net.stem, stages, layout=layout, one_size=True)


def _mobilenetv3(net: nn.Module) -> NetworkParts:
    # Four stages as in a ResNet: all layers before stride 4 belong to the stem.
    *_, before, a, b, c, d = (info['module'] for info in net.feature_info)
    starts = [
        int(name.split('.')[1]) + 1 if name.startswith('blocks.') else 0
        for name in (before, a, b, c, d)
    ]
    first = net.blocks[: starts[0]]
    stem = OrderedDict(conv_stem=net.conv_stem, bn1=net.bn1, blocks=first)
    stages = [list(chain(*net.blocks[a:b])) for a, b in pairwise(starts)]
    widths = [
        [m for m in block.modules() if isinstance(m, nn.BatchNorm2d)][-1].num_features
        for block in chain(*stages)
    ]
    return NetworkParts(nn.Sequential(stem), stages, widths=widths)


def _metaformer(net: nn.Module) -> NetworkParts:
    stages = []
    for stage in net.stages:
        blocks = list(stage.blocks)
        if not stage.use_nchw:  # attention
            blocks = [Wrapped(block, _as_tokens) for block in blocks]
        stages.append(downsampling_first(stage.downsample, blocks))
    return NetworkParts(net.stem, stages)


def _as_tokens(block: nn.Module, x: Tensor) -> Tensor:
    size = x.shape[2:]
    return block(x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, size)


def _pvt(net: nn.Module) -> NetworkParts:
    stages = []
    for stage in net.stages:
        *blocks, last = (Wrapped(block, _with_grid) for block in stage.blocks)
        blocks.append(nn.Sequential(OrderedDict(block=last, norm=stage.norm)))
        if stage.downsample is not None:
            downsample = Wrapped(stage.downsample, _from_nhwc)
            blocks = downsampling_first(downsample, blocks)
        stages.append(blocks)
    return NetworkParts(net.patch_embed, stages, layout='NHWC')


def _from_nhwc(downsample: nn.Module, x: Tensor) -> Tensor:
    return downsample(x.permute(0, 3, 1, 2).contiguous())


def _with_grid(block: nn.Module, x: Tensor) -> Tensor:
    x, grid = block(x.flatten(1, 2), x.shape[1:3]), x.shape[1:3]
    if isinstance(x, tuple):  # of MViT, whose blocks may return a smaller grid
        x, grid = x
    return x.unflatten(1, grid)


def _mvit(net: nn.Module) -> NetworkParts:
    right = net.cls_token is None and net.pos_embed is None
    expected = 'one without cls token and absolute positions, such as mvitv2_tiny'
    check(right, 'anchors.model', 'a MultiScaleVit with them', expected)
    stages = [[Wrapped(b, _with_grid) for b in s.blocks] for s in net.stages]
    widths = [block.dim_out for stage in net.stages for block in stage.blocks]
    stem = Wrapped(net.patch_embed, _embed_mvit)
    return NetworkParts(stem, stages, 'NHWC', one_size=True, widths=widths)


def _embed_mvit(patch_embed: nn.Module, images: Tensor) -> Tensor:
    x, grid = patch_embed(images)
    return x.unflatten(1, grid)


def _samvit(net: nn.Module) -> NetworkParts:
    blocks = [*net.blocks]
    net.patch_embed.dynamic_img_pad = True
    net.blocks = net.neck = net.head = None
    return NetworkParts(Wrapped(net, _embed_samvit), [blocks], layout='NHWC')


def _embed_samvit(net: nn.Module, images: Tensor) -> Tensor:
    x = net.patch_embed(images)
    if net.pos_embed is not None:
        (*old, _), grid = net.pos_embed.shape[1:], tuple(x.shape[1:3])
        table = net.pos_embed.flatten(1, 2)
        table = resize_pos_embed(table, tuple(old), grid, 0, antialias=True)
        x = x + table.unflatten(1, grid)
    return net.norm_pre(net.patch_drop(net.pos_drop(x)))


def _hiera(net: nn.Module) -> NetworkParts:
    ends, blocks = [-1, *net.stage_ends], [*net.blocks]
    for i, block in enumerate(blocks):
        # The order in which the previous block left the tokens.
        strides, size = net.reroll.schedule[max(i - 1, 0)]
        unroll = type(net.unroll)(size, (1, 1), strides)
        call = partial(_in_order, unroll, partial(net.reroll, block_idx=i))
        blocks[i] = Wrapped(block, call)
        if block.attn.use_mask_unit_attn:  # of five dimensions, which no ONNX fuses
            block.attn.fused_attn = False
    stages = [blocks[a + 1 : b + 1] for a, b in pairwise(ends)]
    net.blocks = net.head = None
    stem = Wrapped(net, _embed_hiera)
    return NetworkParts(stem, stages, layout='NHWC', one_size=True)


def _embed_hiera(net: nn.Module, images: Tensor) -> Tensor:
    tokens = net._pos_embed(net.patch_embed(images))
    return tokens.unflatten(1, net.tokens_spatial_shape)


def _in_order(
    unroll: nn.Module, reroll: Callable, block: nn.Module, x: Tensor
) -> Tensor:
    """Run a block of Hiera, which reads and returns tokens window by window."""
    return reroll(block(unroll(x.flatten(1, 2))))


def downsampling_first(
    downsample: nn.Module, blocks: Iterable[nn.Module]
) -> list[nn.Module]:
    """Return the blocks of a stage, its downsampling joined to the first."""
    first, *others = blocks
    if not isinstance(downsample, nn.Identity):
        first = nn.Sequential(OrderedDict(downsample=downsample, block=first))
    return [first, *others]


def holds_downsampling(block: nn.Module) -> bool:
    """Return whether a block is joined to the downsampling of its stage."""
    return isinstance(block, nn.Sequential) and hasattr(block, 'downsample')


def _downsampling_apart(stages: list[list[nn.Module]]) -> list[list[nn.Module]]:
    """Make downsampling modules blocks of their own, if any stage has one."""
    if not any(holds_downsampling(first) for first, *_ in stages):
        return stages
    apart = [
        [*(first.children() if holds_downsampling(first) else [first]), *others]
        for first, *others in stages
    ]
    return [[nn.Identity(), *apart[0]], *apart[1:]]


@dataclass(frozen=True)
class StagedFamily(Family):
    """Networks of timm that a function splits into their stem and blocks.

    Attributes:
        split: Returns the parts of a network.
        branches: Branches of the classes of blocks that have any.
    """

    split: Callable[[nn.Module], NetworkParts]
    branches: BranchKinds = field(default_factory=dict)


# Swin v2 normalises the output of a branch, so its blocks have none.
_BRANCHES = {
    'timm.ConvNeXtBlock': (TimmConvNeXtMLP,),
    'timm.SwinTransformerBlock': (TimmSwinAttention, TimmMLP),
}
for _split, *_mirrors in (
    (_convnext, 'timm.ConvNeXt'),
    (_hiera, 'timm.Hiera'),
    (_levit, 'timm.Levit'),
    (_metaformer, 'timm.MetaFormer'),
    (_mobilenetv3, 'timm.MobileNetV3'),
    (_mvit, 'timm.MultiScaleVit'),
    (_pvt, 'timm.PyramidVisionTransformerV2'),
    (_resnet, 'timm.ResNet'),
    (_samvit, 'timm.VisionTransformerSAM'),
    (_swin, 'timm.SwinTransformer', 'timm.SwinTransformerV2'),
):
    register_family(StagedFamily('TimmStageAnchor', tuple(_mirrors), _split, _BRANCHES))


@MODELS.register_module()
class TimmStageAnchor(Anchor):
    """A staged timm network: an anchor or a standalone backbone.

    Supports Swin (v1 and v2), ResNet, ConvNeXt, LeViT, MobileNetV3 and any other
    :class:`StagedFamily` that is registered. Blocks are numbered across stages. A
    downsampling layer belongs to the block after it; layers after the last block belong
    to the head.

    Args:
        model: Name of the network, such as ``'swin_tiny_patch4_window7_224'``.
        pretrained: Shorthand for ``init_cfg=dict(type='Pretrained',
            checkpoint='timm://<model>')``.
        model_args: Further arguments of ``timm.create_model`` and the constructor.
        img_size: Image side in pixels, or height and width. LeViT accepts no other
            size; Swin derives its windows from it. Default: the size of timm's weights.
        downsampling_blocks: Whether downsampling layers, and the end of the stem, are
            separate blocks, where bridges leave and enter networks. Default: False.
        lora: ConvNeXt only, with ``targets`` among ``('fc1', 'fc2')``; see
            :class:`Anchor`.
        init_cfg: A ``'Pretrained'`` checkpoint may be ``'timm://<name>'``, a file of
            timm or of the family's authors, or an mm checkpoint.
    """

    lora_part = 'mlp'

    def __init__(
        self,
        model: str,
        pretrained: bool = False,
        model_args: Mapping | None = None,
        img_size: int | Sequence[int] | None = None,
        drop_path_rate: float = 0,
        downsampling_blocks: bool = False,
        init_cfg: dict | None = None,
        **kwargs,
    ) -> None:
        init_cfg = timm_init_cfg(model, pretrained, init_cfg)
        settings = check_model_args(model_args, _OWN_KEYS)
        settings['drop_path_rate'] = drop_path_rate
        if img_size is not None and has_fixed_size(model):
            settings['img_size'] = tuple(to_2tuple(img_size))
        net = _create(model, **settings)
        theirs = _names_of(net)
        family = family_of(net, StagedFamily, 'anchors.model', model)
        with as_described(family.name, model, 'anchors.model'):
            parts = family.split(net)
        joined = _names_of(nn.ModuleList(chain(*parts.stages)))
        if downsampling_blocks:
            parts.stages = _downsampling_apart(parts.stages)
        dims, strides = [], []
        info = net.feature_info[-len(parts.stages) :]
        for of_stage, stage in zip(info, parts.stages, strict=True):
            dims += [of_stage['num_chs']] * len(stage)
            strides += [of_stage['reduction']] * len(stage)
        self.biased_layers = parts.linear
        self.lora_targets = [name.removeprefix('mlp.') for name in parts.linear]
        super().__init__(parts.widths or dims, strides, init_cfg=init_cfg, **kwargs)
        self.model, self._settings = model, settings
        self.branch_kinds = family.branches
        if model_args:
            self.weights_key += ', model_args'
        self._layout, self._one_size = parts.layout, parts.one_size
        size = img_size or net.pretrained_cfg['input_size'][1:]
        self.input_size = tuple(to_2tuple(size))
        self.stem, self.blocks = parts.stem, nn.ModuleList(chain(*parts.stages))
        own = _names_of(self)
        self._names = {theirs[i]: name for i, name in own.items()}
        # Names in files whose downsampling layers are joined to the block after them.
        self._joined = {f'blocks.{k}': own[i] for i, k in joined.items()}
        self._joined |= {k: k for k in own.values() if k.startswith('stem.')}
        self.drop_unused()
        self.freeze()

    def embed(self, images: Tensor) -> TokenState:
        self._check_size(images.shape[-2:])
        x = self.stem(images)
        return _of_nhwc(x) if self._layout == 'NHWC' else TokenState.of_map(x)

    def block_path(self, i: int) -> str:
        return f'blocks.{i}.block' if self.enters(i) else f'blocks.{i}'

    def drop_block(self, i: int) -> None:
        self.blocks[i] = nn.Identity()

    def enters(self, i: int) -> bool:
        return holds_downsampling(self.blocks[i])

    def enter(self, state: TokenState, i: int) -> TokenState:
        return self._run(self.blocks[i].downsample, state, i)

    def run_block(self, state: TokenState, i: int) -> TokenState:
        return self._run(self.blocks[i], state, i)

    def _run(self, module: nn.Module, state: TokenState, i: int) -> TokenState:
        """Run a part of block i in the layout of the network."""
        run = partial(self.maybe_checkpoint, module)
        if self._layout == 'NCHW':
            return TokenState.of_map(run(state.as_map()))
        if self._layout == 'NHWC':
            return _of_nhwc(run(state.tokens.unflatten(1, state.grid)))
        return TokenState(run(state.tokens), self._grid_after(i, state.grid))

    def fix_input_size(self, size: tuple[int, int]) -> None:
        self._check_size(size)
        grid = tuple(-(-x // self.block_strides[0]) for x in size)
        for i, block in enumerate(self.blocks):
            grid = self._grid_after(i, grid)
            fix_mask(block, grid)
        self.input_size = tuple(size)

    def adapt_weights(self, weights: Weights) -> Weights:
        own, theirs = self.state_dict(), self._names
        if {k for k in own if '.lora_' not in k} <= weights.keys():
            return weights
        if self._joined.keys() <= weights.keys():
            return {self._joined.get(k, k): v for k, v in weights.items()}
        fits = all(
            name in weights and weights[name].shape == own[ours].shape
            for name, ours in theirs.items()
            if ours in own and not name.endswith('num_batches_tracked')
        )
        if not fits:
            net = _create(self.model, **self._settings)
            weights = convert_timm_weights(net, weights)
        # Drop the classifier and derived buffers; surplus blocks stay and raise later.
        parts = {name.split('.')[0] for name in theirs}
        return {
            theirs.get(k, k): v
            for k, v in weights.items()
            if k.split('.')[0] in parts and not k.endswith(_DERIVED)
        }

    def _check_size(self, size: Sequence[int]) -> None:
        right = not self._one_size or tuple(size) == self.input_size
        expected = f'{self.input_size}, the only size that the network is built for'
        check(right, 'anchors.img_size', tuple(size), expected)

    def _grid_after(self, i: int, grid: Grid) -> Grid:
        ratio = self.block_strides[i] // self.block_strides[max(i - 1, 0)]
        return -(-grid[0] // ratio), -(-grid[1] // ratio)


def _create(model: str, drop_path_rate: float, **settings) -> nn.Module:
    """Create a network; those without stochastic depth accept the rate 0."""
    try:
        return create_timm_model(model, drop_path_rate=drop_path_rate, **settings)
    except ValueError as error:
        unknown = 'keyword argument' in str(error) and "'drop_path_rate'" in str(error)
        if not unknown:
            raise
    expected = f'0, as {model} has no stochastic depth'
    check(drop_path_rate == 0, 'anchors.drop_path_rate', drop_path_rate, expected)
    return create_timm_model(model, **settings)


def _names_of(net: nn.Module) -> dict[int, str]:
    """Return the names of all weights and buffers by their ids."""
    return {id(t): name for name, t in net.state_dict(keep_vars=True).items()}


def _of_nhwc(x: Tensor) -> TokenState:
    return TokenState(x.flatten(1, 2), tuple(x.shape[1:3]))

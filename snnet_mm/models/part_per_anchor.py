"""Heads and necks that differ between stitches."""

from collections.abc import Callable, Iterator, Sequence

from mmengine.model import BaseModule, ModuleList
from mmengine.registry import MODELS
from torch import nn

from snnet_mm.stitching import SKIP_KIND, Stitch, StitchingSpace
from snnet_mm.utils import check, register

# Head settings that models read; they must be equal for all stitches.
OF_THE_MODEL = (
    *('align_corners', 'ignore_index', 'num_classes', 'out_channels', 'threshold'),
    *('with_bbox', 'with_mask', 'with_shared_head'),
)


@register(MODELS, passes_on=True)
class PartPerAnchor(BaseModule):
    """A separate part of an mm model, such as a decode head or a neck, for each anchor.

    Replaces the single part: ``forward``, ``loss`` and ``predict`` run the part of the
    active stitch's end anchor. A new model runs the last anchor's part. Everything else
    of the active part is available on :attr:`active`. If the backbone has
    ``maps_of='end'``, each part reads the maps of its own anchor and can start from the
    weights trained with that anchor. An exported stitch contains its plain part.

    Args:
        parts: Configs of the parts, one per anchor, fast -> slow.
        **common: Settings shared by all parts; each part may override them.
    """

    def __init__(self, parts: Sequence[dict], **common) -> None:
        super().__init__()
        listed = isinstance(parts, Sequence) and all(isinstance(p, dict) for p in parts)
        typed = listed and parts and all('type' in part for part in parts)
        wanted = 'a config with a type for each anchor, fast -> slow'
        check(typed, 'PartPerAnchor.parts', parts, wanted)
        self.parts = ModuleList(MODELS.build(dict(common, **p)) for p in parts)
        self._active = len(parts) - 1
        for name in OF_THE_MODEL:
            if hasattr(self.active, name):
                setattr(self, name, getattr(self.active, name))

    @property
    def active(self) -> nn.Module:
        """The part that the active stitch runs."""
        return self.parts[self._active]

    def place_of(self, stitch: Stitch) -> int:
        """Return the index in ``parts`` of the part that a stitch runs."""
        return stitch.end_anchor

    def on_stitch(self, stitch: Stitch) -> None:
        """Activate the part that a stitch runs."""
        self._active = self.place_of(stitch)

    def check_space(self, space: StitchingSpace) -> None:
        """Raise unless each anchor has one part and shared settings are equal."""
        wanted = f'one for each of the {len(space.depths)} anchors of the backbone'
        fits = len(self.parts) == len(space.depths)
        check(fits, 'PartPerAnchor.parts', f'{len(self.parts)} parts', wanted)
        self._check_settings()

    def _check_settings(self) -> None:
        for name in OF_THE_MODEL:
            found = [getattr(part, name, None) for part in self.parts]
            key = f'PartPerAnchor.parts.{name}'
            check(len({*found}) == 1, key, found, 'the same for all parts')

    def idle_parameters(self, stitch: Stitch) -> Iterator[nn.Parameter]:
        """Yield the parameters of the parts that a stitch does not run."""
        for place, part in enumerate(self.parts):
            if place != self.place_of(stitch):
                yield from part.parameters()

    def config_of_stitch(self, config: dict, stitch: Stitch) -> dict:
        """Return the config of the part that a stitch runs, without other parts."""
        common = {k: v for k, v in config.items() if k not in ('type', 'parts')}
        place = self.place_of(stitch)
        config, part = common | config['parts'][place], self.parts[place]
        inner = getattr(type(part), 'config_of_stitch', lambda _, config, __: config)
        return inner(part, config, stitch)

    def forward(self, *args, **kwargs) -> object:
        return self.active(*args, **kwargs)

    def loss(self, *args, **kwargs) -> object:
        """Return the losses of the active part."""
        return self.active.loss(*args, **kwargs)

    def predict(self, *args, **kwargs) -> object:
        """Return the predictions of the active part."""
        return self.active.predict(*args, **kwargs)

    def loss_and_predict(self, *args, **kwargs) -> object:
        """Return losses and predictions of the active part, as mmdet's RPN heads do."""
        return self.active.loss_and_predict(*args, **kwargs)

    @property
    def pre_logits(self) -> Callable:
        """``pre_logits`` of the active part, where it is a classifier's head."""
        return self.active.pre_logits


@register(MODELS, passes_on=True)
class PartPerChain(PartPerAnchor):
    """One part of an mm model for the network, and one for each group of chains.

    For models with an :class:`ElasticBackbone`; see :class:`PartPerAnchor`.

    Args:
        parts: Config of the network's part, then one config per group of chains.
        chains: Stitch ids of each group.
        **common: Settings shared by all parts; each part may override them.

    Raises:
        ValueError: If the numbers of groups and parts do not match, or if a stitch is
            listed twice.
    """

    def __init__(
        self, parts: Sequence[dict], chains: Sequence[Sequence[int]], **common
    ) -> None:
        super().__init__(parts, **common)
        self._places = {i: place for place, ids in enumerate(chains, 1) for i in ids}
        wanted = f'stitch ids, each once, for each of {len(parts) - 1} parts'
        once = len(self._places) == sum(map(len, chains))
        right = once and len(chains) == len(parts) - 1
        check(right, 'PartPerChain.chains', chains, wanted)
        self._active = 0

    def place_of(self, stitch: Stitch) -> int:
        return self._places.get(stitch.id, 0)

    def copy_network(self) -> None:
        """Copy the weights of the network's part to all other parts."""
        for part in self.parts[1:]:
            part.load_state_dict(self.parts[0].state_dict())

    def check_space(self, space: StitchingSpace) -> None:
        """Raise unless every chain is in a group and shared settings are equal."""
        chains = [stitch.id for stitch in space if stitch.kind == SKIP_KIND]
        known = {*chains} <= {*self._places}
        check(known, 'PartPerChain.chains', [*self._places], f'all of {chains}')
        self._check_settings()

    def config_of_stitch(self, config: dict, stitch: Stitch) -> dict:
        """See :meth:`PartPerAnchor.config_of_stitch`."""
        config = {k: v for k, v in config.items() if k != 'chains'}
        return super().config_of_stitch(config, stitch)

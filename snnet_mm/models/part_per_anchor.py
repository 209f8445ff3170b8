"""Heads and necks that differ between stitches."""

from collections.abc import Callable, Iterator, Sequence

from mmengine.model import BaseModule, ModuleList
from mmengine.registry import MODELS
from torch import nn

from snnet_mm.stitching import Stitch, StitchingSpace
from snnet_mm.utils import check

# Head settings that models read; they must be equal for all stitches.
OF_THE_MODEL = (
    *('align_corners', 'ignore_index', 'num_classes', 'out_channels', 'threshold'),
    *('with_bbox', 'with_mask', 'with_shared_head'),
)


@MODELS.register_module()
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

    def on_stitch(self, stitch: Stitch) -> None:
        """Activate the part that a stitch runs."""
        self._active = stitch.end_anchor

    def check_space(self, space: StitchingSpace) -> None:
        """Raise unless each anchor has one part and shared settings are equal."""
        wanted = f'one for each of the {len(space.depths)} anchors of the backbone'
        fits = len(self.parts) == len(space.depths)
        check(fits, 'PartPerAnchor.parts', f'{len(self.parts)} parts', wanted)
        for name in OF_THE_MODEL:
            found = [getattr(part, name, None) for part in self.parts]
            key = f'PartPerAnchor.parts.{name}'
            check(len({*found}) == 1, key, found, 'one value for all parts')

    def idle_parameters(self, stitch: Stitch) -> Iterator[nn.Parameter]:
        """Yield the parameters of the parts that a stitch does not run."""
        for place, part in enumerate(self.parts):
            if place != stitch.end_anchor:
                yield from part.parameters()

    def config_of_stitch(self, config: dict, stitch: Stitch) -> dict:
        """Return the config of the part that a stitch runs, without other parts."""
        common = {k: v for k, v in config.items() if k not in ('type', 'parts')}
        place = stitch.end_anchor
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

"""Heads and necks of dense tasks, one for each anchor that a stitch may end in."""

from collections.abc import Iterator, Sequence

from mmengine.model import BaseModule, ModuleList
from mmengine.registry import MODELS
from torch import nn

from snnet_mm.stitching import Stitch, StitchingSpace
from snnet_mm.utils import check, register

# Settings of a head that models read, the same for all stitches.
OF_THE_MODEL = (
    *('align_corners', 'num_classes', 'out_channels', 'threshold'),
    *('with_bbox', 'with_mask', 'with_shared_head'),
)


@register(MODELS, passes_on=True)
class PartPerAnchor(BaseModule):
    """A part of an mm model, such as a decode head or a neck, for each anchor.

    It replaces the part: ``forward``, ``loss`` and ``predict`` run the part of the
    anchor in which the active stitch ends, in a new model that of the last anchor. All
    else of the active part is at :attr:`active`. With ``maps_of='end'`` in the backbone
    each part reads the maps of its own anchor, and starts from what the anchor was
    trained with. An exported stitch has its plain part.

    Args:
        parts: Configs of the part for every anchor, fast -> slow.
        **common: Settings of all parts, in place of which a part may have its own.
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
        """Do as the part of the anchor in which a stitch ends."""
        self._active = stitch.end_anchor

    def check_space(self, space: StitchingSpace) -> None:
        """Raise unless there is one part for each anchor."""
        wanted = f'one for each of the {len(space.depths)} anchors of the backbone'
        fits = len(self.parts) == len(space.depths)
        check(fits, 'PartPerAnchor.parts', f'{len(self.parts)} parts', wanted)
        for name in OF_THE_MODEL:
            found = [getattr(part, name, None) for part in self.parts]
            key = f'PartPerAnchor.parts.{name}'
            check(len({*found}) == 1, key, found, 'the same for all parts')

    def idle_parameters(self, stitch: Stitch) -> Iterator[nn.Parameter]:
        """Yield the parameters of the parts that a stitch does not run."""
        for a, part in enumerate(self.parts):
            if a != stitch.end_anchor:
                yield from part.parameters()

    def config_of_stitch(self, config: dict, stitch: Stitch) -> dict:
        """Return the config of the part that a stitch runs, which needs no others."""
        common = {k: v for k, v in config.items() if k not in ('type', 'parts')}
        return common | config['parts'][stitch.end_anchor]

    def forward(self, *args, **kwargs) -> object:
        return self.active(*args, **kwargs)

    def loss(self, *args, **kwargs) -> object:
        """Return the losses of the active part."""
        return self.active.loss(*args, **kwargs)

    def predict(self, *args, **kwargs) -> object:
        """Return what the active part predicts."""
        return self.active.predict(*args, **kwargs)

    def loss_and_predict(self, *args, **kwargs) -> object:
        """Return losses and predictions of the active part, as mmdet's RPN heads do."""
        return self.active.loss_and_predict(*args, **kwargs)

"""Heads and necks that differ between stitches."""

from collections.abc import Iterator, Sequence
from typing import Any

from mmengine.model import BaseModule, ModuleList
from mmengine.registry import MODELS
from torch import nn

from snnet_mm.stitching import Stitch, StitchingSpace
from snnet_mm.utils import check

# Settings that mm models read once, so they must be equal for all stitches.
SHARED = 'align_corners', 'ignore_index', 'num_classes', 'out_channels', 'threshold'


@MODELS.register_module()
class PartPerAnchor(BaseModule):
    """A separate part of an mm model, such as a decode head or a neck, for each anchor.

    Replaces the single part: methods and attributes are those of the part of the active
    stitch's end anchor, :attr:`active`. A new model runs the last anchor's part. If the
    backbone has ``maps_of='end'``, each part reads the maps of its own anchor and can
    start from the weights trained with that anchor. An exported stitch contains its
    plain part.

    Args:
        parts: Configs of the parts, one per anchor, fast -> slow.
        **common: Settings shared by all parts; each part may override them.
    """

    def __init__(self, parts: Sequence[dict], **common) -> None:
        super().__init__()
        listed = isinstance(parts, Sequence) and all(isinstance(p, dict) for p in parts)
        typed = listed and parts and all('type' in part for part in parts)
        expected = 'a config with a type for each anchor, fast -> slow'
        check(typed, 'PartPerAnchor.parts', parts, expected)
        self._active = len(parts) - 1
        self.parts = ModuleList(MODELS.build(dict(common, **p)) for p in parts)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if 'parts' not in self.__dict__.get('_modules', ()):  # not set yet
                raise
            return getattr(self.active, name)

    @property
    def active(self) -> nn.Module:
        """The part that the active stitch runs."""
        return self.parts[self._active]

    def on_stitch(self, stitch: Stitch) -> None:
        """Activate the part that a stitch runs."""
        self._active = stitch.end_anchor

    def check_space(self, space: StitchingSpace) -> None:
        """Raise unless each anchor has one part and shared settings are equal."""
        expected = f'one for each of the {len(space.depths)} anchors of the backbone'
        fits = len(self.parts) == len(space.depths)
        check(fits, 'PartPerAnchor.parts', f'{len(self.parts)} parts', expected)
        for name in SHARED:
            found = [getattr(part, name, None) for part in self.parts]
            key = f'PartPerAnchor.parts.{name}'
            check(len({*found}) == 1, key, found, 'the same value in all parts')

    def idle_parameters(self, stitch: Stitch) -> Iterator[nn.Parameter]:
        """Yield the parameters of the parts that a stitch does not run."""
        for place, part in enumerate(self.parts):
            if place != stitch.end_anchor:
                yield from part.parameters()

    def config_of_stitch(self, config: dict, stitch: Stitch) -> dict:
        """Return the config of the part that a stitch runs, without other parts."""
        common = {k: v for k, v in config.items() if k not in ('type', 'parts')}
        return common | config['parts'][stitch.end_anchor]

    def forward(self, *args, **kwargs) -> object:
        return self.active(*args, **kwargs)

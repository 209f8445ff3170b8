"""The base of backbone plug-ins that change how each stitch runs."""

from abc import ABCMeta, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import Tensor, nn

from snnet_mm.stitching import Stitch
from snnet_mm.utils import check

from .stitched_backbone import StitchedBackbone


class StitchPlugin(nn.Module, metaclass=ABCMeta):
    """Changes the blocks of anchors while a stitch runs.

    Names of a stitch's parameters begin with its id. Blocks are changed during the
    backbone's forward, and again while a block is recomputed for its gradient
    (``with_cp``), as other stitches may have run since.
    """

    shares_prefixes = False  # stitches have no states in common
    exported_settings: dict = {}  # anchor settings that exported weights require

    def __init__(self, backbone: StitchedBackbone) -> None:
        super().__init__()
        for anchor in backbone.anchors:
            single = 'checkpoint_context' not in vars(anchor)
            expected = 'one plug-in that changes the blocks of anchors'
            check(single, 'backbone.plugins', type(self).__name__, expected)
            anchor.checkpoint_context = self._contexts
        self._running: Stitch | None = None
        self.active = True  # False while the cost of a merged stitch is measured
        backbone.register_forward_pre_hook(self._before_forward)
        backbone.register_forward_hook(self._after_forward, always_call=True)

    @abstractmethod
    def exported_weights(
        self, stitch: Stitch, weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the backbone weights, by name, that differ in an exported stitch.

        ``weights`` are all weights of the backbone by name, low-rank updates merged.
        """

    @abstractmethod
    def _apply_to(self, stitch: Stitch) -> None:
        """Change the blocks of the anchors for a stitch."""

    @abstractmethod
    def _undo(self, stitch: Stitch) -> None:
        """Restore the blocks of the anchors."""

    def idle_parameters(self, stitch: Stitch) -> list[nn.Parameter]:
        """Return the parameters of all other stitches."""
        own = str(stitch.id)
        return [p for n, p in self.named_parameters() if n.partition('.')[0] != own]

    def _before_forward(self, backbone: StitchedBackbone, *_) -> None:
        self._running = backbone.active_stitch
        if self.active:
            self._apply_to(self._running)

    def _after_forward(self, *_) -> None:
        self._undo(self._running)

    def _contexts(self) -> tuple[AbstractContextManager, AbstractContextManager]:
        return nullcontext(), self._running_again(self._running)

    @contextmanager
    def _running_again(self, stitch: Stitch) -> Iterator[None]:
        self._apply_to(stitch)
        try:
            yield
        finally:  # torch ends a recomputation early by an exception
            self._undo(stitch)

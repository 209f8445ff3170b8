"""Least-squares fits of all stitching layers to streamed activations."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import Tensor, nn

from snnet_mm.anchors import Anchor, TokenState
from snnet_mm.stitching import Position, Step, StitchingLayerSpec
from snnet_mm.utils import check

from ..backbones.scaling import scaled_images
from ..backbones.stitched_backbone import StitchedBackbone
from ..backbones.walk import walk
from .stitching_layer import StitchingLayer

PIECE = 4096  # tokens whose products are summed before they are added in float64
ROWS = 256  # of a Gram matrix, of which one triangle is computed, at a time
PREFIX_RIDGE = 1.0  # see docs/explanation/experiments_elastic.md
Joints = tuple[StitchingLayerSpec, ...]  # all joints of one layer, sorted


class LeastSquares:
    """Least-squares affine maps between paired activations x and y.

    Equation 2 of SN-Netv2, ``min ||x M - y||``, is solved from the float64 sums
    ``X'X``, ``X'Y`` and ``Y'Y`` alone. X and Y have a column of ones for the bias.
    Memory does not grow with the number of images, and ranks can add their sums.

    Args:
        x_dim, y_dim: Widths of x and y.
        both_ways: Whether to keep ``Y'Y``, which the map from y to x requires.
        ridge: Relative increase of each diagonal entry except the bias entry, so that
            too few tokens or dependent channels still yield a finite map.
        device: Device of the activations.
        exact: Whether to multiply in float64. Float32 is twice as fast, for ridges well
            above its rounding.
    """

    def __init__(
        self,
        x_dim: int,
        y_dim: int,
        both_ways: bool = True,
        ridge: float = 1e-8,
        device: torch.device | str | None = None,
        exact: bool = True,
    ) -> None:
        self.x_dim, self.ridge, self.exact = x_dim, ridge, exact
        sizes = [(x_dim, x_dim), (x_dim, y_dim), (y_dim, y_dim)][: 2 + both_ways]
        # Allocated here, so that a rank without images can still all-reduce.
        self._sums = [
            torch.zeros(m + 1, n + 1, dtype=torch.float64, device=device)
            for m, n in sizes
        ]

    def update(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add paired activations ``(..., x_dim)`` and ``(..., y_dim)``.

        ``weights`` ``(...)`` of their squared errors are 1 by default.
        """
        dtype = torch.float64 if self.exact else torch.float32
        x, y = (
            torch.cat([z, z.new_ones(len(z), 1)], dim=1)
            for z in (x.flatten(0, -2).to(dtype), y.flatten(0, -2).to(dtype))
        )
        weighted = x, y
        if weights is not None:
            weighted = [z * weights.reshape(-1, 1).to(z) for z in (x, y)]
        size = len(x) if self.exact else PIECE
        parts = (z.split(size) for z in (x, y, *weighted))
        for a, b, left, of_y in zip(*parts, strict=True):
            _add_triangle(self._sums[0], left, a)
            self._sums[1] += left.T @ b
            if len(self._sums) > 2:
                _add_triangle(self._sums[2], of_y, b)

    def all_reduce(self) -> None:
        """Add the sums of all ranks, if there are several."""
        if dist.is_available() and dist.is_initialized():
            for total in self._sums:
                dist.all_reduce(total)

    @property
    def sums(self) -> tuple[Tensor, ...]:
        """``X'X``, ``X'Y`` and, for both ways, ``Y'Y``, with the columns of ones."""
        # Checked after all-reducing: a rank that raises earlier would block the others.
        expected = 'images to fit the stitching layers to'
        number = int(self._sums[0][-1, -1])  # or the sum of the weights
        check(number, 'train_dataloader.dataset', number, expected)
        finite = all(total.isfinite().all() for total in self._sums)
        expected = 'weights and images that give finite activations'
        key = 'anchors.init_cfg, checkpoint'
        check(finite, key, 'weights of the anchors', expected)
        xx, xy, *yy = self._sums
        return _mirrored(xx), xy, *map(_mirrored, yy)

    def x_to_y(self, channels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return weight ``(y_dim, x_dim)`` and bias ``(y_dim,)`` from x to y.

        ``channels`` of x, if given, are the only inputs, in their order.
        """
        xx, xy, *_ = self.sums
        if channels is not None:
            used = torch.cat([channels, channels.new_tensor([self.x_dim])])
            xx, xy = xx[used][:, used], xy[used]
        return solve_affine(xx, xy[:, :-1], self.ridge)

    def y_to_x(self) -> tuple[Tensor, Tensor]:
        """Return weight ``(x_dim, y_dim)`` and bias ``(x_dim,)`` from y to x."""
        _, xy, yy = self.sums
        return solve_affine(yy, xy.T[:, :-1], self.ridge)

    def difference_from(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Fit the residuals of a map; return the weight and bias to add to it.

        The weight has a ridge of ``PREFIX_RIDGE`` times the mean variance of x. It is
        zero if x is constant, such as a cls token before the first block.
        """
        xx, xy = self.sums
        left = xy[:, :-1] - xx @ torch.cat([weight.T, bias[None]])
        number, mean = xx[-1, -1], xx[-1, :-1] / xx[-1, -1]
        gram = xx[:-1, :-1] - number * mean.outer(mean)
        cross = left[:-1] - mean.outer(left[-1])
        rounding = 1e-8 * xx.diagonal()[:-1].mean()  # far above the sums' rounding
        variance = torch.maximum(gram.diagonal().mean(), rounding)
        guard = (PREFIX_RIDGE * variance).clamp(min=1e-30)
        more = torch.linalg.solve(gram + guard * torch.eye(len(gram)).to(gram), cross)
        return more.T, left[-1] / number - mean @ more


class LayerFit:
    """Fits a stitching layer to paired states by least squares.

    Prefix tokens are few. If they have a separate map, only its difference from the map
    of all tokens is fitted, with a ridge of ``PREFIX_RIDGE`` times their variance.
    """

    def __init__(self, layer: StitchingLayer, ridge: float) -> None:
        settings = layer.in_features, layer.out_features, False, ridge
        device, self.layer = layer.weight.device, layer
        self._all = LeastSquares(*settings, device, exact=ridge < 1e-6)
        self._prefix = LeastSquares(*settings, device)

    def update(
        self, x: TokenState, y: TokenState, weights: Tensor | None = None
    ) -> None:
        """Add the states around the layer, with weights ``(B, N)`` of the tokens."""
        self._all.update(*self.layer.pair(x, y), weights)
        if number := self.layer.num_prefix:
            self._prefix.update(x.tokens[:, :number], y.tokens[:, :number])

    def all_reduce(self) -> None:
        """See :meth:`LeastSquares.all_reduce`."""
        self._all.all_reduce()
        self._prefix.all_reduce()

    def set_maps(self) -> None:
        """Set the layer's maps to the fitted ones."""
        fitted = self._all.x_to_y()
        if self.layer.num_prefix:
            fitted += self._prefix.difference_from(*fitted)
        self.layer.set_map(*fitted)


def _add_triangle(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add the symmetric ``a' b``, without most of the part below the diagonal."""
    for begin in range(0, len(total), ROWS):
        rows = slice(begin, begin + ROWS)
        total[rows, begin:] += a[:, rows].T @ b[:, begin:]


def _mirrored(total: Tensor) -> Tensor:
    return total.triu() + total.triu(1).T


def solve_affine(gram: Tensor, cross: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Solve normal equations whose last row is the bias."""
    guard = torch.zeros_like(gram.diagonal())
    # The floor keeps the system solvable if a channel is always zero.
    guard[:-1] = (ridge * gram.diagonal()[:-1]).clamp(min=1e-30)
    solution = torch.cholesky_solve(cross, factor_with_ridge(gram, guard))
    return solution[:-1].T, solution[-1]


def factor_with_ridge(gram: Tensor, ridge: Tensor) -> Tensor:
    """Return the Cholesky factor of a Gram matrix with a ridge on its diagonal.

    The ridge grows tenfold until there is a factor: sums of few tokens, or of channels
    whose mean is far above their variance, are singular to rounding.
    """
    failed = True
    while failed:
        total = gram.clone()
        total.diagonal().add_(ridge)
        factor, failed = torch.linalg.cholesky_ex(total)
        ridge = 10 * ridge
    return factor


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Run a model in eval mode, whatever happens."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@torch.no_grad()
def fit_stitching_layers(
    backbone: StitchedBackbone, batches: Iterable[Tensor], ridge: float = 1e-8
) -> int:
    """Set every stitching layer to its least-squares map (SN-Netv2, equation 2).

    A layer with several joints is fitted to all of them. The anchors run in eval mode,
    unlike in the authors' segmentation code, where drop path removes branches at random
    from both sides. ``batches`` yields this rank's preprocessed images ``(B, 3, H,
    W)``; it may be empty if other ranks have images. All ranks obtain equal maps, or
    all raise. Returns the number of images seen on this rank.
    """
    for layer in backbone.stitching_layers.values():
        affine, expected = hasattr(layer, 'set_map'), 'affine layers, or no hook'
        check(affine, 'default_hooks.stitch_init', type(layer).__name__, expected)
    fits = _new_fits(backbone, ridge)
    positions = {p for joints in fits for joint in joints for p in joint}
    num_images = 0
    with in_eval_mode(backbone):
        for images in batches:
            with torch.autocast(images.device.type, enabled=False):
                states = _states_at(backbone.anchors, images, positions)
                for joints, fit in fits.items():
                    for a, b in joints:
                        fit.update(states[a].fitted, states[b].fitted)
            num_images += len(images)
    # Every rank adds its sums before any rank may raise.
    for fit in fits.values():
        fit.all_reduce()
    maps = {
        name: fits[js].x_to_y() if js in fits else fits[_reversed(js)].y_to_x()
        for name, js in backbone.space.joints.items()
    }
    for name, fitted in maps.items():
        backbone.stitching_layers[name].set_map(*fitted)
    backbone.stitching_initialized.fill_(True)
    return num_images


@torch.no_grad()
def fit_in_turn(
    backbone: StitchedBackbone,
    batches: Iterable[Tensor],
    ridge: float = 1e-4,
    progress: Callable[[int, int], None] = lambda done, total: None,
    folder: str | os.PathLike | None = None,
    weigh: Callable[[int, TokenState], Tensor] | None = None,
) -> None:
    """Fit the stitching layers of chains one after the other along each route.

    A layer is fitted from the state that reaches it in its own chain to the network's
    state at the end of the gap and at the chain's scale, so that it corrects errors of
    earlier layers. The network at all scales and its chains advance together from one
    such end to the next and run every block once. In between, the states of all images
    are in a temporary folder.

    Args:
        backbone: The :class:`ElasticBackbone`.
        batches: Preprocessed images ``(B, 3, H, W)`` of this rank, iterated once.
        ridge: See :class:`LeastSquares`.
        progress: Called with the numbers of fitted gap ends and of all gap ends.
        folder: Parent of the temporary folder. Default: the system's.
        weigh: Returns weights ``(B, N)`` of the tokens, from the index of a batch and
            a state of its images. Default: all tokens count alike.

    Raises:
        ValueError: If there are no images, or activations that are not finite.
    """
    space, layers = backbone.space, backbone.stitching_layers
    (anchor,) = backbone.runners
    device = next(backbone.parameters()).device
    ends = {name: spec.target for name, spec in space.layers.items()}
    places = sorted({*ends.values()})
    scales = {s.id: s.scale for s in space if s.layers}
    # Steps after the embedding, by chain, and of the network by scale.
    left = {space[i].id: space[i].steps[1:] for i in scales}
    whole = {scale: f'x{scale:g}' for scale in {*scales.values()}}
    left |= dict.fromkeys(whole.values(), space[0].steps[1:])
    number = 0
    with (
        in_eval_mode(backbone),
        TemporaryDirectory(dir=folder) as states,
        torch.autocast(device.type, enabled=False),
    ):
        for images in batches:
            for scale, network in whole.items():
                state = anchor.embed(scaled_images(images, scale, anchor.anchor))
                for i in [network, *(i for i in scales if scales[i] == scale)]:
                    torch.save(tuple(state), f'{states}/{i}_{number}.pth')
            number += 1
        for done, place in enumerate(places, start=1):
            due = {s.id: n for s in space for n in s.layers if ends[n] == place}
            fits = {i: LayerFit(layers[n], ridge) for i, n in due.items()}
            stops = {x: left[x].index(place) + 1 for x in whole.values()}
            stops |= {i: left[i].index(name) for i, name in due.items()}
            for n in range(number):
                reached = {
                    i: _go_on(backbone, left[i][:stop], f'{states}/{i}_{n}.pth')
                    for i, stop in stops.items()
                }
                targets = {scale: reached[x] for scale, x in whole.items()}
                weights = {x: weigh(n, y) for x, y in targets.items()} if weigh else {}
                for i, fit in fits.items():
                    scale = scales[i]
                    fit.update(reached[i], targets[scale], weights.get(scale))
            left |= {i: left[i][stop:] for i, stop in stops.items()}
            for fit in fits.values():
                fit.all_reduce()
                fit.set_maps()
            progress(done, len(places))
    backbone.stitching_initialized.fill_(True)


def _go_on(backbone: StitchedBackbone, steps: Sequence[Step], file: str) -> TokenState:
    """Run steps on the state in a file; save and return the new state."""
    state = TokenState(*torch.load(file, weights_only=True))
    for step in steps:
        if isinstance(step, str):
            state = backbone.stitching_layers[step].map_state(state)
        else:
            state = backbone.runners[step.anchor].run_block(state, step.block)
    torch.save(tuple(state), file)
    return state


def _new_fits(backbone: StitchedBackbone, ridge: float) -> dict[Joints, LeastSquares]:
    """Return fits by joints; a layer and its reverse share one two-way fit."""
    fits, device = {}, next(backbone.parameters()).device
    served = dict.fromkeys(backbone.space.joints.values())
    for joints in served:
        back = _reversed(joints)
        if back not in fits:
            widths = (backbone.width_at(position) for position in joints[0])
            fits[joints] = LeastSquares(*widths, back in served, ridge, device)
    return fits


def _reversed(joints: Joints) -> Joints:
    return tuple(sorted(StitchingLayerSpec(b, a) for a, b in joints))


def _states_at(
    anchors: Sequence[Anchor], images: Tensor, positions: set[Position]
) -> dict[Position, TokenState]:
    """Run each anchor on its own; return its states at the given positions."""
    found: dict[Position, TokenState] = {}
    for a in {position.anchor for position in positions}:
        blocks = [position.block for position in positions if position.anchor == a]
        steps = [Position(a, i) for i in range(-1, max(blocks) + 1)]
        taps = [(Position(a, i), None) for i in blocks]
        _, states = walk(anchors, {}, steps, images, taps)
        found |= {position: state for (position, _), state in states.items()}
    return found

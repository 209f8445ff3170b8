"""What every anchor promises, whatever network it is."""

from copy import deepcopy

import pytest
import torch
from mmengine.registry import MODELS
from staged_anchors import disturb
from states import states_of
from torch.utils._pytree import tree_leaves


class AnchorContract:
    """Checks of one family; subclasses say how its anchors are built.

    ``config`` builds an anchor for images of ``size``.
    """

    config: dict
    size = 64, 64
    kept: tuple[int, ...]  # blocks that a part keeps
    levels: dict[str, int]  # for layer-wise decay, by parts of names of parameters
    one_size = False  # whether it takes images of its own size alone

    def build(self, **settings):
        torch.manual_seed(1)
        return disturb(MODELS.build(deepcopy(self.config) | settings)).eval()

    def images(self, number=2, size=None):
        torch.manual_seed(2)
        return torch.randn(number, 3, *(size or self.size))

    @torch.no_grad()
    def test_forward_is_its_blocks_one_by_one(self):
        anchor, images = self.build(), self.images()
        states = states_of(anchor, images)
        assert len(states) == anchor.depth
        for state, dim, stride in zip(
            states, anchor.block_dims, anchor.block_strides, strict=True
        ):
            assert state.fitted.shape[-1] == dim
            grid = getattr(state, 'grid', None) or state.map.shape[-2:]
            assert tuple(grid) == tuple(-(-side // stride) for side in self.size)
        found = tree_leaves(anchor(images))
        wanted = [
            anchor.to_output(states[i], anchor.with_cls, place)
            for place, i in enumerate(anchor.out_indices)
        ]
        for a, b in zip(found, tree_leaves(wanted), strict=True):
            assert a.equal(b)
        anchor.out = 'end'
        assert anchor(images).fitted.equal(states[-1].fitted)
        assert len(anchor.stages) == len(set(anchor.block_strides))

    @torch.no_grad()
    def test_some_blocks_alone(self, tmp_path):
        whole, images = self.build(), self.images()
        weights = {f'backbone.{k}': v for k, v in whole.state_dict().items()}
        torch.save(weights, tmp_path / 'a.pth')
        part = self.build(kept_blocks=self.kept)
        self.load(part, tmp_path / 'a.pth')
        state, own = whole.embed(images), part.embed(images)
        for i in self.kept:
            state, own = whole.run_block(state, i), part.run_block(own, i)
            assert own.fitted.equal(state.fitted)
        lost = {
            whole.layer_depth(k)[0] - 1
            for k in whole.state_dict().keys() - part.state_dict().keys()
        }
        assert lost
        assert not lost & {*self.kept}
        with pytest.raises(ValueError, match=r'kept_blocks.*blocks 0 to'):
            self.build(kept_blocks=[0, whole.depth])

    def load(self, part, path):
        settings = dict(type='Pretrained', checkpoint=str(path), prefix='backbone')
        part.init_cfg = settings
        part.init_weights()

    def test_levels_of_layer_decay(self):
        anchor = self.build()
        for name, level in self.levels.items():
            of_name = [n for n, _ in anchor.named_parameters() if name in n]
            assert of_name, name
            found = {anchor.layer_depth(n) for n in of_name}
            assert found == {(level, anchor.depth + 2)}, name

    def loss_and_gradients(self, anchor, seed):
        anchor.zero_grad()
        images = self.images(4)
        torch.manual_seed(seed)
        loss = sum(m.square().mean() for m in anchor(images))
        loss.backward()
        return loss.detach(), {n: p.grad for n, p in anchor.named_parameters()}

    def test_checkpointing_changes_nothing(self):
        plain, saving = (
            self.build(drop_path_rate=0.4, with_cp=cp).train() for cp in (False, True)
        )
        calls = []
        saving.trunk.blocks[1].register_forward_pre_hook(lambda *_: calls.append(1))
        wanted_loss, wanted = self.loss_and_gradients(plain, 3)
        loss, gradients = self.loss_and_gradients(saving, 3)
        assert loss.equal(wanted_loss)
        assert len(calls) == 2
        for name, gradient in gradients.items():
            if wanted[name] is None:
                assert gradient is None
            else:
                torch.testing.assert_close(gradient, wanted[name], msg=name)
        with torch.no_grad():
            saving(self.images())
        assert len(calls) == 3

    def test_what_is_frozen_gets_no_gradient_and_keeps_its_statistics(self):
        anchor = self.build(frozen_stages=2, out_indices=(-1,)).train()
        before = {k: v.clone() for k, v in anchor.state_dict().items()}
        self.loss_and_gradients(anchor, 3)
        for name, parameter in anchor.named_parameters():
            frozen = anchor.layer_depth(name)[0] <= 2
            assert parameter.requires_grad != frozen, name
            assert frozen == (parameter.grad is None), name
        moved = {k for k, v in anchor.state_dict().items() if not v.equal(before[k])}
        assert all(anchor.layer_depth(k)[0] > 2 for k in moved)
        modes = [{m.training for m in b.modules()} for b in anchor.trunk.blocks]
        assert modes == [{i >= 2} for i in range(anchor.depth)]
        everything = self.build(frozen_stages=anchor.depth)
        assert not any(p.requires_grad for p in everything.parameters())

    @torch.no_grad()
    def test_fixing_the_size_changes_no_output(self):
        anchor = self.build()
        size = anchor.input_size if self.one_size else (self.size[0], self.size[1] + 32)
        images = self.images(size=size)
        wanted = tree_leaves(anchor(images))
        anchor.fix_input_size(size)
        for a, b in zip(tree_leaves(anchor(images)), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)

import random

import pytest
import torch
from block_counts import count_blocks

from snnet_mm.stitching import visiting_order


@pytest.fixture
def backbone(build_snnet):
    return build_snnet(out_indices=(6, 0, 2, 3)).eval()


@torch.no_grad()
def outputs(backbone, stitch, images):
    backbone.set_stitch(stitch.id)
    return sum((backbone(x) for x in images), ())


def equal(a, b):
    return len(a) == len(b) and all(map(torch.equal, a, b))


def crops(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, 16, w, generator=generator) for w in (24, 24, 32)]


def test_sharing_prefixes_runs_no_block_twice(backbone):
    """And every stitch is the same as without."""
    images, space, calls = crops(), backbone.space, []
    alone = {s.id: outputs(backbone, s, images) for s in space}
    for anchor in backbone.anchors:
        for block in anchor.blocks:
            block.register_forward_hook(lambda *_: calls.append(1))
    with backbone.sharing_prefixes():
        for stitch in visiting_order(space):
            assert equal(outputs(backbone, stitch, images), alone[stitch.id])
    assert len(calls) == len(images) * count_blocks(space, shared=True)
    assert len(calls) < len(images) * count_blocks(space, shared=False)


def test_sharing_prefixes_any_order_and_images_are_the_same(backbone):
    """Also more crops, fewer crops and images changed in place."""
    rng, changing = random.Random(0), torch.zeros(1, 3, 16, 16)
    with backbone.sharing_prefixes():
        for n in range(15):
            stitch = rng.choice(list(backbone.space))
            changing += 1
            images = [*crops(n // 5)[: rng.randrange(4)], changing]
            shared = outputs(backbone, stitch, images)
            prefixes, backbone._prefixes = backbone._prefixes, None
            assert equal(shared, outputs(backbone, stitch, images))
            backbone._prefixes = prefixes

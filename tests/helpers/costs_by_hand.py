WIDTHS, DEPTHS = (8, 12), (3, 7)
PATCH, SIZE = 8, (32, 48)
NUM_PATCHES = SIZE[0] // PATCH * SIZE[1] // PATCH
NUM_TOKENS = 1 + NUM_PATCHES
LAYERS = [dict(type='StitchingLayer'), dict(type='LoRAStitchingLayer', rank=2)]


def embed_cost(dim):
    """MACs and parameters of patch projection, cls token and position embedding."""
    macs = NUM_PATCHES * dim * 3 * PATCH**2
    params = dim * 3 * PATCH**2 + dim + dim + 16 * dim  # built for 32x32: 16 patches
    return macs, params


def block_cost(dim):
    """MACs and parameters of a transformer block with LayerScale."""
    n = NUM_TOKENS
    qkv, out, mlp = n * dim * 3 * dim, n * dim * dim, 2 * n * dim * 4 * dim
    attention = 2 * n * n * dim  # queries by keys, and weights by values
    matrices = 12 * dim**2
    vectors = 3 * dim + dim + 4 * dim + dim + 2 * 2 * dim + 2 * dim
    return qkv + attention + out + mlp, matrices + vectors


def cost_by_hand(stitch, maps, of_end=False):
    """MACs and parameters of a route that outputs ``maps``, indices of slow blocks."""
    to = stitch.end_anchor if of_end else 1
    parts = [embed_cost(WIDTHS[stitch.segments[0].anchor])]
    layers, run = set(), set()
    for n, (a, begin, end) in enumerate(stitch.segments):
        parts += [block_cost(WIDTHS[a])] * (end - begin)
        run |= {(a, i) for i in range(begin, end)}
        if n and a == 1:
            layers.add(f'0to1_{stitch.segments[n - 1].end - 1}')
        elif n:
            layers.add(f'1to0_{begin - 1}')
    for j in maps:
        i = j * DEPTHS[0] // DEPTHS[1]
        if (to, (i, j)[to]) not in run:
            layers.add(f'{1 - to}to{to}_{i}')
    for name in layers:
        source, target = WIDTHS if name.startswith('0to1') else WIDTHS[::-1]
        parts.append((NUM_TOKENS * source * target, source * target + target))
    return tuple(map(sum, zip(*parts, strict=True)))

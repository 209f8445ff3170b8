from snnet_mm.stitching import Position


def count_blocks(stitches, shared):
    """Blocks that run if every stitch sees the same input once.

    If ``shared``, a block runs only once on the same activations.
    """
    routes = [s.steps for s in stitches]
    if shared:
        return len(
            {r[: i + 1] for r in routes for i in range(len(r)) if is_block(r[i])}
        )
    return sum(is_block(step) for route in routes for step in route)


def is_block(step):
    return isinstance(step, Position) and step.block >= 0

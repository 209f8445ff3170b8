from snnet_mm.stitching import Position


def count_blocks(stitches, shared):
    """Count the blocks run on one input, with common prefixes once if ``shared``."""
    runs = [
        route[: i + 1]
        for route in (stitch.steps for stitch in stitches)
        for i, step in enumerate(route)
        if isinstance(step, Position) and step.block >= 0
    ]
    return len(set(runs) if shared else runs)

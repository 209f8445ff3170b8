"""Anchors run block by block, as a stitched backbone runs them."""


def run(anchor, state, begin=0, end=None):
    """The state after blocks ``[begin, end)``."""
    for i in range(begin, anchor.depth if end is None else end):
        state = anchor.run_block(state, i)
    return state


def states_of(anchor, images):
    """The states after all blocks."""
    state, states = anchor.embed(images), []
    for i in range(anchor.depth):
        states.append(state := anchor.run_block(state, i))
    return states

"""Anchors run block by block, as a stitched backbone runs them."""


def run(anchor, state, begin=0, end=None):
    """Return the state after blocks ``[begin, end)``."""
    for i in range(begin, anchor.depth if end is None else end):
        state = anchor.run_block(state, i)
    return state


def states_on_route(net, stitch, images):
    """Run a route block by block; return all states by anchor and block."""
    state, states, layers = None, {}, iter(stitch.layers)
    for anchor, begin, end in stitch.segments:
        if state is None:
            state = net.anchors[anchor].embed(images)
        else:
            state = net.stitching_layers[next(layers)].map_state(state)
        for i in range(begin, end):
            state = net.anchors[anchor].run_block(state, i)
            states[anchor, i] = state
    return states


def states_of(anchor, images):
    """Return the state after each block."""
    state, states = anchor.embed(images), []
    for i in range(anchor.depth):
        states.append(state := anchor.run_block(state, i))
    return states

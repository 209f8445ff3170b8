"""Faults that a generator puts into plain data: a config, a JSON file, bytes."""

import copy
import random

# What stands where something else should, by what should be there.
WRONG = {
    bool: ('yes', None, 7),
    int: (-1, 0, 101, 2.5, 'text', None, [1]),
    float: (-1.0, float('nan'), float('inf'), 'text', None, [1]),
    str: ('', 'no_such_thing', 3, None, ['text']),
    list: ([], None, 'text', 3, {'text': 3}),
    dict: ({}, None, 'text', 3, [3]),
    type(None): ('text', -1, [3]),
}


def places(tree, path=()):
    """Where everything in a tree of dicts and lists is, the tree itself left out."""
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list | tuple):
        items = enumerate(tree)
    else:
        return
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def at(tree, path):
    """What is at a place."""
    for key in path:
        tree = tree[key]
    return tree


def kind_of(value):
    return list if isinstance(value, tuple) else type(value)


def faults(tree, within=((),), without=()):
    """All faults of a tree: where, and ``'removed'``, ``'misspelt'`` or a new value.

    Args:
        tree: Dicts, lists and plain values.
        within: Only places that begin with one of these.
        without: No places that begin with one of these.
    """
    for path in places(tree):
        starts = {path[:n] for n in range(len(path) + 1)}
        if starts.isdisjoint(within) or not starts.isdisjoint(without):
            continue
        if isinstance(path[-1], str):
            yield path, 'removed', None
            yield path, 'misspelt', None
        old = at(tree, path)
        for new in WRONG.get(kind_of(old), ()):
            if type(new) is not type(old) or new != old:
                yield path, 'changed', new


def is_of_another_kind(old, new):
    """Whether a value can be no setting of what was there, None left aside."""
    if new is None or old is None or isinstance(old, bool):
        return False
    if isinstance(old, float) and isinstance(new, int | float):
        return new != new  # not a number
    return kind_of(old) is not kind_of(new)


def break_at(tree, path, how, new):
    """A copy of the tree with one fault."""
    tree = copy.deepcopy(tree)
    parent, key = at(tree, path[:-1]), path[-1]
    if isinstance(parent, tuple):
        return break_at(tree, path[:-1], 'changed', _replaced(parent, key, new))
    if how == 'changed':
        parent[key] = new
    else:
        value = parent.pop(key)
        if how == 'misspelt':
            parent[f'{key}x'] = value
    return tree


def _replaced(items, i, new):
    return (*items[:i], new, *items[i + 1 :])


def drawn(all_faults, number, seed=0):
    """A few of them, as many of each place as can be: what is named is the place."""
    rng = random.Random(seed)
    by_place = {}
    for fault in all_faults:
        by_place.setdefault(fault[0], []).append(fault)
    chosen = [rng.choice(group) for group in by_place.values()]
    rng.shuffle(chosen)
    if len(chosen) < number:
        rest = [f for group in by_place.values() for f in group if f not in chosen]
        chosen += rng.sample(rest, min(number - len(chosen), len(rest)))
    return chosen[:number]


def name_of(fault):
    """How a test of a fault is called."""
    path, how, new = fault
    place = '.'.join(map(str, path))
    return f'{place}-{how}' if how != 'changed' else f'{place}={new!r}'

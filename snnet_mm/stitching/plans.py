"""Plans: hidden units of each branch of a network, and a scale, in a line of text."""

import re
from collections.abc import Sequence

from snnet_mm.utils import check

Plan = tuple[int, ...]  # units of every step, in order; 0 skips the step
SCALE = re.compile(r'(\d*\.?\d+)x(:\s*|$)')


def write_plan(plan: Plan, blocks: Sequence[int | None], scale: float = 1) -> str:
    """Return a plan as text, such as ``'0:3/768 1:0/768'``.

    Each word has the number of a block, and the units of its branches in order: heads
    and neurons of a transformer block. Before them, ``'0.7x: '`` is the scale of the
    images, unless it is 1.

    Args:
        plan: Units of every step; an empty one is the whole network.
        blocks: Block of every step; None for steps that always run.
        scale: Factor of the sides of the images.

    Examples:
        >>> write_plan((3, 768, 0, 768, 1), (0, 0, 1, 1, None))
        '0:3/768 1:0/768'
        >>> write_plan((), (), 0.7)
        '0.7x'
    """
    words: dict[int, list[str]] = {}
    for units, block in zip(plan, blocks, strict=True):
        if block is not None:
            words.setdefault(block, []).append(str(units))
    text = ' '.join(f'{block}:{"/".join(units)}' for block, units in words.items())
    return ': '.join(filter(None, [f'{scale:g}x' if scale != 1 else '', text]))


def read_plan(
    text: str, widths: Sequence[int], blocks: Sequence[int | None], key: str
) -> tuple[Plan, float]:
    """Return the plan and the scale in a text of :func:`write_plan`.

    Blocks that it omits run whole.

    Args:
        text: The plan.
        widths: Units of every step when it runs whole.
        blocks: See :func:`write_plan`.
        key: Config key or option that has the plan, for messages.

    Raises:
        ValueError: If a word cannot be read, or a block or a number of units does not
            exist.

    Examples:
        >>> read_plan('0.7x: 1:0/768', (6, 1536, 6, 1536), (0, 0, 1, 1), 'chains')
        ((6, 1536, 0, 768), 0.7)
    """
    plan = list(widths)
    steps: dict[int, list[int]] = {}
    for step, block in enumerate(blocks):
        if block is not None:
            steps.setdefault(block, []).append(step)
    blocks_once = f'blocks 0 to {max(steps)}, each once'
    expected = "words such as '0:3/768': a block, and the units of its branches"
    line = text if isinstance(text, str) else ''
    found = SCALE.match(line)
    scale = float(found[1]) if found else 1.0
    limits = 'a factor above 0x and up to 1x of the sides of the images'
    check(0 < scale <= 1, key, text, limits)
    words = line[found.end() if found else 0 :].split()
    check(words or found, key, text, f'{expected} (tools/make_elastic.py writes them)')
    for word in words:
        check(re.fullmatch(r'\d+:\d+(/\d+)*', word), key, word, expected)
        block, *units = map(int, re.split('[:/]', word))
        check(block in steps, key, word, blocks_once)
        own = steps.pop(block)
        whole = [widths[step] for step in own]
        fits = [0 <= n <= m for n, m in zip(units, whole, strict=False)]
        right = all(fits) and len(units) == len(whole)
        limits = '/'.join(f'0 to {m}' for m in whole)
        check(right, key, word, f'{block}:{limits} (units of each branch)')
        for step, n in zip(own, units, strict=True):
            plan[step] = n
    return tuple(plan), scale

"""Plans: how many hidden units each branch of a network runs, in one line of text."""

import re
from collections.abc import Sequence

from snnet_mm.utils import check

Plan = tuple[int, ...]  # units of every step, in order; 0 skips the step


def write_plan(plan: Plan, blocks: Sequence[int | None]) -> str:
    """Return a plan as text, such as ``'0:3/768 1:0/768'``.

    Each word has the number of a block, and the units of its branches in order: heads
    and neurons of a transformer block.

    Args:
        plan: Units of every step.
        blocks: Block of every step; None for steps that always run.

    Examples:
        >>> write_plan((3, 768, 0, 768, 1), (0, 0, 1, 1, None))
        '0:3/768 1:0/768'
    """
    words: dict[int, list[str]] = {}
    for units, block in zip(plan, blocks, strict=True):
        if block is not None:
            words.setdefault(block, []).append(str(units))
    return ' '.join(f'{block}:{"/".join(units)}' for block, units in words.items())


def read_plan(
    text: str, widths: Sequence[int], blocks: Sequence[int | None], key: str
) -> Plan:
    """Read the text of :func:`write_plan`; blocks that it omits run whole.

    Args:
        text: The plan.
        widths: Units of every step when it runs whole.
        blocks: See :func:`write_plan`.
        key: Config key or option that has the plan, for messages.

    Raises:
        ValueError: If a word cannot be read, or a block or a number of units does not
            exist.

    Examples:
        >>> read_plan('1:0/768', (6, 1536, 6, 1536), (0, 0, 1, 1), 'chains')
        (6, 1536, 0, 768)
    """
    plan = list(widths)
    steps: dict[int, list[int]] = {}
    for step, block in enumerate(blocks):
        if block is not None:
            steps.setdefault(block, []).append(step)
    blocks_once = f'blocks 0 to {max(steps)}, each once'
    expected = "words such as '0:3/768': a block, and the units of its branches"
    words = text.split() if isinstance(text, str) else ()
    check(words, key, text, f'{expected} (tools/make_elastic.py writes them)')
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
    return tuple(plan)

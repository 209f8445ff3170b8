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
    plan, steps = list(widths), {}
    for step, block in enumerate(blocks):
        if block is not None:
            steps.setdefault(block, []).append(step)
    last = max(steps)
    wanted = "words such as '0:3/768': a block, and the units of its branches"
    again = f'{wanted}; if it has blocks, as in an earlier version, run '
    again += 'tools/make_elastic.py again'
    check(isinstance(text, str), key, text, again)
    check(text.split(), key, text, wanted)
    for word in text.split():
        match = re.fullmatch(r'(\d+):(\d+(?:/\d+)*)', word)
        check(match, key, word, wanted)
        block, units = int(match[1]), [int(n) for n in match[2].split('/')]
        check(block in steps, key, word, f'blocks 0 to {last}, each once')
        own = steps.pop(block)
        whole = [widths[step] for step in own]
        limits = '/'.join(f'0 to {n}' if n > 1 else '0 or 1' for n in whole)
        what = 'units of each branch' if max(whole) > 1 else 'the block has no units'
        right = len(units) == len(whole)
        right = right and all(n <= w for n, w in zip(units, whole, strict=True))
        check(right, key, word, f'{block}:{limits} ({what})')
        for step, n in zip(own, units, strict=True):
            plan[step] = n
    return tuple(plan)

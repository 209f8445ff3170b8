"""A look at the anchors' own scores before they are stitched."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from snnet_mm.models import StitchedBackbone
from snnet_mm.stitching.metrics import HIGHER, key_metric, metric_directions
from snnet_mm.utils import load_weights_only

PERCENT = 0.5  # points that a slow anchor should be ahead by
RELATIVE = 0.02


def missing_headroom(backbone: StitchedBackbone) -> str | None:
    """Say of which slow anchor it is known that it hardly beats the faster one alone.

    Scores are those of the last validation that the trainings of the checkpoints in
    ``init_cfg`` logged. Without any, nothing is said.
    """
    scores = [_scores(anchor.init_cfg) for anchor in backbone.anchors]
    for fast, slow in pairwise(scores):
        directions = metric_directions(fast.keys() & slow.keys())
        if not directions:
            continue
        metric = key_metric(sorted(directions))
        before, after = fast[metric], slow[metric]
        gain = after - before if directions[metric] == HIGHER else before - after
        percent = directions[metric] == HIGHER and max(before, after) > 1
        if gain < (PERCENT if percent else RELATIVE * abs(before)):
            return (
                f'{metric} of the slow anchor alone is {after:.4g}, of the faster one '
                f'{before:.4g}: stitches can hardly be worth more than the faster '
                'anchor. Train the slow one longer, or take another pair.'
            )
    return None


def _scores(init_cfg: Mapping | None) -> dict[str, float]:
    """Return what is known of a checkpoint's model: from logs beside it, or inside."""
    options = init_cfg if isinstance(init_cfg, Mapping) else {}
    path = Path(str(options.get('checkpoint', '')))
    if not path.is_file():
        return {}
    # The last checkpoint is older than the validation of its weights.
    found, step = {}, re.search(r'(?:iter|epoch)_(\d+)', path.stem)
    for log in sorted(path.parent.glob('*/vis_data/scalars.json')) if step else ():
        with suppress(ValueError):  # one that was torn
            for line in map(json.loads, log.read_text().splitlines()):
                if line.get('step') == int(step[1]) and 'loss' not in line:
                    found = line
    if not metric_directions(found):
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            logged = load_weights_only(path)['message_hub']['log_scalars'].items()
            found = {k: v.current() for k, v in logged if k.startswith('val/')}
    # Those of a stitched model are of its stitches, trained together.
    names = (name for name in found if 'stitch_' not in name)
    return {name.removeprefix('val/'): float(found[name]) for name in names}

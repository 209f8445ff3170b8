"""Load a service with open-loop arrivals: ``serving_load.py BUNDLE IMAGES --out FILE``.

Images are sent at random times to a running ``tools/serve.py BUNDLE``, and answers in
time are counted. A miss counts 0 in the effective metric. Bundles of one stitch show
what the choice of stitches gains.
"""

import argparse
import asyncio
import math
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np

from snnet_mm.runtime import read_manifest
from snnet_mm.runtime.image_io import list_image_files
from snnet_mm.utils import ToolParser, machine, run_command, write_json

# Factors of the rate with mean 1: for one second of four, 4 times the quiet rate.
BURST, QUIET, PERIOD = 16 / 7, 4 / 7, 4
PERCENTILES = 50, 95, 99


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Load a service with requests')
    add = parser.add_argument
    add('bundle', type=Path, help='the bundle that is served')
    add('images', help='folder of images')
    add('--out', type=Path, required=True, help='JSON file')
    add('--url', default='http://127.0.0.1:8000', help='default: %(default)s')
    add('--rates', type=float, nargs='+', default=[2, 4, 6, 9], help='per second')
    add('--deadlines', type=float, nargs='+', default=[400, 1000], help='in ms')
    add('--seconds', type=float, default=20, help='of each load')
    return parser.parse_args()


def arrivals(rate: float, bursts: bool, seconds: float) -> list[float]:
    """Return random arrival times in seconds, drawn with a fixed seed."""
    draw, now, found = random.Random(0), 0.0, []
    while True:
        factor = (BURST if now % PERIOD < 1 else QUIET) if bursts else 1
        now += draw.expovariate(rate * factor)
        if now > seconds:
            return found
        found.append(now)


async def load(url: str, times: list[float], bodies: list[bytes]) -> list[tuple]:
    """Send requests at given times; return milliseconds, status and stitch."""
    import aiohttp

    limit = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=limit) as session:

        async def send(i: int, at: float) -> tuple:
            await asyncio.sleep(begin + at - time.perf_counter())
            async with session.post(url, data=bodies[i % len(bodies)]) as answer:
                await answer.read()
            names = 'X-Precision', 'X-Stitch-Id'
            stitch = tuple(answer.headers.get(name) for name in names)
            return (time.perf_counter() - begin - at) * 1000, answer.status, stitch

        begin = time.perf_counter() + 0.2
        return await asyncio.gather(*(send(*x) for x in enumerate(times)))


def summarize(found: list[tuple], deadline: float, scores: dict) -> dict:
    """Return shares and metrics with 95 % intervals, and times of answered requests."""
    good = [ms <= deadline and status == 200 for ms, status, _ in found]
    values = [scores[f[2]] if ok else 0.0 for f, ok in zip(found, good, strict=True)]
    share, half = np.mean(good), 1.96 / math.sqrt(len(found))
    middle = (share + half**2 / 2) / (1 + half**2)
    width = half * math.sqrt(share * (1 - share) + half**2 / 4) / (1 + half**2)
    times = [ms for ms, status, _ in found if status == 200] or [math.nan]
    spread = half * np.std(values)
    return dict(
        requests=len(found), in_time=share, interval=[middle - width, middle + width],
        effective=np.mean(values),
        effective_interval=[np.mean(values) - spread, np.mean(values) + spread],
        stitches=Counter(' '.join(f[2]) for f in found if f[1] == 200),
        **{f'p{p}': np.percentile(times, p) for p in PERCENTILES},
    )  # fmt: skip


def main() -> None:
    args, scores, rows = parse_args(), {}, []
    manifest = read_manifest(args.bundle)
    metric = manifest['ranked_by']['metric']
    for stitch in manifest['stitches']:
        for file in stitch['files']:
            lost = (file['verified'] or {}).get('lost') or 0
            key = file['precision'], str(stitch['id'])
            scores[key] = stitch['metrics'][metric] - lost
    paths = [
        image.path for image in list_image_files(args.images, args.out.parent / 'none')
    ]
    bodies = [path.read_bytes() for path in paths[:50]]
    for deadline in args.deadlines:
        url = f'{args.url}/predict?deadline_ms={deadline}'
        for bursts in (False, True):
            for rate in args.rates:
                times = arrivals(rate, bursts, args.seconds)
                found = asyncio.run(load(url, times, bodies))
                row = dict(deadline=deadline, bursts=bursts, rate=rate)
                rows.append(row | summarize(found, deadline, scores))
                text = f'{deadline:5g} ms {rate:4g}/s {"4x" * bursts:2} '
                text += f'{100 * rows[-1]["in_time"]:5.1f} % in time, {metric} '
                print(f'{text}{rows[-1]["effective"]:.1f}', flush=True)
    write_json(args.out, dict(machine=machine(), metric=metric, loads=rows))


if __name__ == '__main__':
    run_command(main)

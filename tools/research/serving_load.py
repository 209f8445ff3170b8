"""Load a service with open-loop arrivals, under its rule and simpler policies.

``serving_load.py BUNDLE IMAGES --out FILE`` serves on loopback, sends images at random
times, and counts answers in time. A miss counts 0 in the effective metric. The other
policies are the rule without the queue, and single stitches.
"""

import argparse
import asyncio
import math
import random
import statistics
import time
from pathlib import Path

from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.deadline import choose
from snnet_mm.runtime.folder import list_images
from snnet_mm.utils import ToolParser, machine, run_command, write_json

URL = 'http://127.0.0.1:8265'
# Factors of the rate with mean 1: for one second of four, 4 times the quiet rate.
BURST, QUIET, PERIOD = 16 / 7, 4 / 7, 4


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Load a service with requests')
    add = parser.add_argument
    add('bundle', type=Path)
    add('images', help='folder of images')
    add('--out', type=Path, required=True, help='JSON file')
    add('--rates', type=float, nargs='+', default=[2, 4, 6, 9], help='per second')
    add('--deadlines', type=float, nargs='+', default=[400, 1000], help='in ms')
    add('--seconds', type=float, default=20, help='of each load')
    add('--precision', default='fp32')
    add('--replicas', type=int, default=1)
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


async def load(times: list[float], deadline: float, bodies: list[bytes]) -> list[tuple]:
    """Send requests at given times; return milliseconds, status and stitch id."""
    import aiohttp

    limit = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=limit) as session:

        async def send(i: int, at: float) -> tuple:
            await asyncio.sleep(begin + at - time.perf_counter())
            url = f'{URL}/predict?deadline_ms={deadline}'
            async with session.post(url, data=bodies[i % len(bodies)]) as answer:
                await answer.read()
                about = answer.headers
            elapsed = (time.perf_counter() - begin - at) * 1000
            return elapsed, answer.status, int(about.get('X-Stitch-Id', -1))

        begin = time.perf_counter() + 0.2
        return await asyncio.gather(*(send(*x) for x in enumerate(times)))


def summarize(found: list[tuple], deadline: float, scores: dict) -> dict:
    """Return shares and metrics with 95 % intervals, and times of answered requests."""
    number = len(found)
    good = [status == 200 and ms <= deadline for ms, status, _ in found]
    values = [scores[f[2]] if ok else 0.0 for f, ok in zip(found, good, strict=True)]
    share, half = sum(good) / number, 1.96 / math.sqrt(number)
    middle = (share + half**2 / 2) / (1 + half**2)
    width = half * math.sqrt(share * (1 - share) + half**2 / 4) / (1 + half**2)
    times = sorted(ms for ms, status, _ in found if status == 200) or [math.nan]
    at = {f'p{p}': times[min(int(p / 100 * len(times)), len(times) - 1)]
          for p in (50, 95, 99)}  # fmt: skip
    error = half * statistics.pstdev(values)
    effective = sum(values) / number
    return dict(
        requests=number, in_time=share, interval=[middle - width, middle + width],
        metric=sum(values) / max(sum(good), 1), effective=effective,
        effective_interval=[effective - error, effective + error],
        stitches={i: sum(f[2] == i for f in found) for i in scores}, **at,
    )  # fmt: skip


def main() -> None:
    args = parse_args()

    import ray
    from ray import serve

    from snnet_mm.serving import build_service, check_settings
    from snnet_mm.serving.service import Worker

    class MeasuredWorker(Worker):
        """A replica that can also apply the rule without the queue."""

        def reconfigure(self, settings: dict) -> None:
            """Apply service settings; if ``blind``, the rule ignores the queue."""
            super().reconfigure(settings)
            blind = lambda front, slack, *_: choose(front, slack, 1)  # noqa: E731
            self.choose = blind if settings['blind'] else choose

    runtime = StitchRuntime(args.bundle, 1, precision=args.precision)
    ids = [key[1] for key in runtime.front()]
    ranked, scores = runtime.manifest['ranked_by']['metric'], {}
    for i in ids:
        (file,) = (
            f for f in runtime.stitches[i]['files'] if f['precision'] == args.precision
        )
        lost = (file['verified'] or {}).get('lost') or 0
        scores[i] = runtime.stitches[i]['metrics'][ranked] - lost
    alone = dict(slow=ids[-1], middle=ids[len(ids) // 2], fast=ids[0])
    policies = dict(rule={}, blind=dict(blind=True))
    policies |= {name: dict(stitches=[i]) for name, i in alone.items()}
    paths = [image.path for image in list_images(args.images, args.out.parent / 'none')]
    bodies = [path.read_bytes() for path in paths[:50]]
    ray.init(num_cpus=max(2, args.replicas), include_dashboard=False,
             object_store_memory=2**28, log_to_driver=False)  # fmt: skip
    serve.start(http_options=dict(host='127.0.0.1', port=int(URL.split(':')[-1])))
    settings = check_settings({}, runtime) | dict(blind=False)
    more = args.replicas, 1, args.precision, MeasuredWorker
    handle = serve.run(build_service(args.bundle, settings, *more))
    rows = []
    for name, changed in policies.items():
        blind = dict(blind=changed.pop('blind', False))
        settings = check_settings(changed, runtime) | blind
        handle.reconfigure.remote(settings).result()
        asyncio.run(load([0.0, 0.5, 1.0], 9000, bodies))  # warm-up
        for deadline in args.deadlines:
            for bursts in (False, True):
                for rate in args.rates:
                    times = arrivals(rate, bursts, args.seconds)
                    found = asyncio.run(load(times, deadline, bodies))
                    about = dict(policy=name, deadline=deadline, bursts=bursts)
                    row = about | dict(rate=rate) | summarize(found, deadline, scores)
                    rows.append(row)
                    low, high = (round(100 * x) for x in row['interval'])
                    text = f'{name:6} {deadline:5g} ms {rate:4g}/s {"4x" * bursts:2} '
                    text += f'{100 * row["in_time"]:5.1f} % [{low}, {high}]'
                    for key in ('p50', 'p95', 'p99', 'metric', 'effective'):
                        text += f' {key} {row[key]:.1f}'
                    print(text, flush=True)
    about = dict(machine=machine(), precision=args.precision, replicas=args.replicas)
    times = {f'{p} {i}': ms for (p, i), ms in runtime.front().items()}
    write_json(args.out, about | dict(front=times, scores=scores, loads=rows))
    serve.shutdown()


if __name__ == '__main__':
    run_command(main)

"""Serve a bundle over HTTP on Ray Serve: ``tools/serve.py BUNDLE``.

See docs/how_to/serving.md.
"""

import argparse
import json
import signal
import threading
from pathlib import Path

from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.device import usable_cores
from snnet_mm.utils import ToolParser, check, run_command

STOP = signal.SIGINT, signal.SIGTERM


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Serve a bundle over HTTP')
    add = parser.add_argument
    add('bundle', type=Path, help='a bundle of tools/export_stitch.py')
    add('--host', default='127.0.0.1', help='address to listen on (%(default)s)')
    add('--port', type=int, default=8000, help='default: %(default)s')
    add('--replicas', type=int, default=1, help='processes (default: %(default)s)')
    add('--threads', type=int, default=1, help='of each (default: %(default)s)')
    add('--precision', help='precision of the graphs')
    what = 'JSON file of settings, read again at SIGHUP'
    add('--settings', type=Path, help=what)
    add('--address', help='Ray cluster to run on (default: one for this service)')
    return parser.parse_args()


def read_settings(path: Path | None, runtime: StitchRuntime) -> dict:
    """Read and validate the settings; without a file, return the defaults."""
    from snnet_mm.serving import check_settings

    try:
        found = json.loads(path.read_text()) if path else {}
    except (OSError, ValueError) as error:
        raise ValueError(f'{path} cannot be read: {error} (--settings)') from None
    check(isinstance(found, dict), '--settings', found, 'an object')
    return check_settings(found, runtime)


def main() -> None:
    args = parse_args()

    from ray import serve

    from snnet_mm.serving import build_service, start_ray

    for key in ('replicas', 'threads'):
        value = getattr(args, key)
        check(value > 0, f'--{key}', value, 'whole numbers from 1')
    # Latencies are measured here, before replicas compete for the machine.
    runtime = StitchRuntime(args.bundle, args.threads, precision=args.precision)
    settings = read_settings(args.settings, runtime)
    cores = max(usable_cores(), args.replicas * args.threads)
    start_ray(cores, args.address)
    serve.start(http_options=dict(host=args.host, port=args.port))
    wake, seen = threading.Event(), []
    for number in (*STOP, signal.SIGHUP):
        signal.signal(number, lambda n, _: (seen.append(n), wake.set()))

    more = args.replicas, args.threads, args.precision
    handle = serve.run(build_service(args.bundle, settings, *more), name='snnet')
    print(f'Serving {args.bundle} on http://{args.host}:{args.port}', flush=True)
    while not {*seen} & {*STOP}:
        wake.wait()
        wake.clear()
        if signal.SIGHUP in seen:
            seen.remove(signal.SIGHUP)
            try:
                settings = read_settings(args.settings, runtime)
            except ValueError as error:
                print(f'Settings are as before: {error}', flush=True)
            else:
                handle.reconfigure.remote(settings).result()
                print(f'Settings: {json.dumps(settings)}', flush=True)
    handle.drain.remote().result(timeout_s=settings['timeout_s'])
    serve.delete('snnet')
    if not args.address:
        serve.shutdown()
    print('Stopped; all accepted requests were answered', flush=True)


if __name__ == '__main__':
    run_command(main)

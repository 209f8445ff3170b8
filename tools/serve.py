"""Serve a bundle over HTTP on Ray Serve: ``tools/serve.py BUNDLE``.

See docs/how_to/deploy.md.
"""

import argparse
import math
import signal
import threading
from pathlib import Path

from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.device import PROVIDERS, usable_cores
from snnet_mm.utils import ToolParser, check, run_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(
        'Serve a bundle over HTTP; a request may set a deadline or a budget'
    )
    add = parser.add_argument
    add('bundle', type=Path, help='a bundle of tools/export_stitch.py')
    what = 'address to listen on (default: %(default)s)'
    add('--host', default='127.0.0.1', help=what)
    add('--port', type=int, default=8000, help='port (default: %(default)s)')
    what = 'number of processes (default: %(default)s)'
    add('--replicas', type=int, default=1, help=what)
    what = 'maximum number of processes under load (default: --replicas)'
    add('--max-replicas', type=int, help=what)
    what = 'CPU threads per replica (default: %(default)s)'
    add('--threads', type=int, default=1, help=what)
    add('--precision', help='use only graphs of this precision')
    what = 'execution providers of onnxruntime in order of preference (default: cpu)'
    add('--provider', nargs='+', choices=PROVIDERS, default=('cpu',), help=what)
    what = 'deadline of requests that set no deadline or budget (default: none)'
    add('--deadline-ms', type=float, default=math.inf, help=what)
    what = 'requests that wait in a replica, their images received; others are refused'
    add('--max-queue', type=int, default=64, help=f'{what} (default: %(default)s)')
    what = 'request timeout in seconds (default: %(default)s)'
    add('--timeout', type=float, default=30, help=what)
    add('--metrics-port', type=int, help="port of Ray's Prometheus metrics")
    add('--address', help='Ray cluster to run on (default: one for this service)')
    return parser.parse_args()


def main() -> None:
    args = parse_args()

    from ray import serve

    from snnet_mm.serving import build_service, start_ray

    max_replicas = args.max_replicas or args.replicas
    for key in ('replicas', 'threads', 'max_queue'):
        value = getattr(args, key)
        check(value > 0, f'--{key.replace("_", "-")}', value, 'a whole number from 1')
    expected = f'{args.replicas} or more'
    check(max_replicas >= args.replicas, '--max-replicas', max_replicas, expected)
    # Latencies are measured here, before replicas compete for the machine.
    graphs = dict(precision=args.precision, providers=args.provider)
    StitchRuntime(args.bundle, args.threads, **graphs).front()
    ports = dict(_metrics_export_port=args.metrics_port) if args.metrics_port else {}
    start_ray(max(usable_cores(), max_replicas * args.threads), args.address, **ports)
    http = dict(host=args.host, port=args.port, request_timeout_s=args.timeout)
    serve.start(http_options=http)
    options = dict(graceful_shutdown_timeout_s=args.timeout)
    options |= dict(num_replicas=args.replicas)
    if args.max_replicas:
        scaling = dict(min_replicas=args.replicas, max_replicas=args.max_replicas)
        options |= dict(num_replicas=None, autoscaling_config=scaling)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    settings = dict(bundle=str(args.bundle.resolve()), threads=args.threads)
    settings |= graphs | dict(deadline_ms=args.deadline_ms, max_queue=args.max_queue)
    serve.run(build_service(settings | dict(options=options)), name='snnet')
    print(f'Serving {args.bundle} on http://{args.host}:{args.port}', flush=True)
    stop.wait()
    serve.delete('snnet')  # replicas answer what they accepted
    print('Stopped', flush=True)


if __name__ == '__main__':
    run_command(main)

"""Run a part of ``gpu_session.sh``: ``tools/research/gpu_session.py PART``.

``PART.json`` holds the figures of a part's cases by name: null for those that did not
run. It is written after every case, and another call runs only those without figures.
"""

import argparse
import os
from pathlib import Path

from snnet_mm.utils import ToolParser, machine, read_json, run_command, write_json

PARTS = ['tests', 'steps', 'latency', 'elastic', 'loaders']
OUT = Path(os.environ.get('OUT') or 'work_dirs/gpu_session')
Figures = dict[str, float | str | None]


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    what = 'part to measure; data: draw images alone; report: print all figures'
    parser.add_argument('part', choices=[*PARTS, 'data', 'report'], help=what)
    return parser.parse_args()


def run_part(name: str) -> None:
    import gpu_parts

    cases, path = getattr(gpu_parts, name)(), OUT / f'{name}.json'
    known = results_of(path)
    found = {case: known.get(case) for case in cases}
    left = [case for case in cases if not found[case] or 'error' in found[case]]
    about = dict(machine=machine(), toy=gpu_parts.TOY, cases=found)
    if left:  # a part may end before its first case
        write_json(path, about)
    for case in left:
        gpu_parts.reset_peak()
        start = gpu_parts.now()
        try:
            figures = cases[case]()
        except Exception as error:  # the other cases are measured all the same
            reason = f'{type(error).__name__}: {error}'.splitlines()[0]
            figures = dict(error=reason[:300])
        found[case] = figures | dict(seconds=gpu_parts.now() - start)
        write_json(path, about)
        print(f'{name}, {case}: {in_words(found[case])}', flush=True)


def results_of(path: Path) -> dict[str, Figures | None]:
    if not path.exists():
        return {}
    made = 'file of figures', 'tools/research/gpu_session.sh'
    return read_json(path, lambda content: content['cases'], *made)


def in_words(figures: Figures | None) -> str:
    if figures is None:
        return 'not run'
    known = {key: value for key, value in figures.items() if value not in (None, '')}
    return ', '.join(
        f'{key} {value:.4g}' if isinstance(value, float) else f'{key} {value}'
        for key, value in known.items()
    )


def report() -> None:
    """Print the figures of all parts as Markdown, and write them to ``report.md``."""
    lines = ['| part | case | figures |', '|---|---|---|']
    for part in PARTS:
        for case, found in (results_of(OUT / f'{part}.json') or {'all': None}).items():
            lines.append(f'| {part} | {case} | {in_words(found)} |')
    (OUT / 'report.md').write_text('\n'.join(lines) + '\n')
    print('\n'.join(lines))


def main() -> None:
    args = parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if args.part == 'report':
        report()
    elif args.part == 'data':
        import gpu_parts

        gpu_parts.data()
    else:
        run_part(args.part)


if __name__ == '__main__':
    run_command(main)

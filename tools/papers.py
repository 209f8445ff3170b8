"""The registry of the papers' results, ``configs/papers.yml``: its runs and pages.

``python tools/papers.py`` generates from it the tables of the READMEs of ``configs/``,
between their marks, and the page about reproducing; from ``configs/hours.yml``, the
hours in the page about data. A test compares them.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    from mmengine.config import Config

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / 'configs'
LIST, HOURS = CONFIGS / 'papers.yml', CONFIGS / 'hours.yml'
PAGE = ROOT / 'docs' / 'explanation' / 'reproducing.md'
DATA_PAGE = ROOT / 'docs' / 'how_to' / 'data.md'
HOURS_MARK = '<!-- hours: written by tools/papers.py from hours.yml -->\n'
END = '<!-- end -->'
# Below the first table of each README that does not say so above.
WEIGHTS = """
Where pretrained weights come from: [weights](../../docs/how_to/anchors.md#weights).
"""
COLUMNS = dict(
    paper='in the paper',
    configs='configs',
    data='data, weights',
    hardware='hardware of the paper',
    here='run here',
    state='state',
)


class Run(NamedTuple):
    """A config to train and test, with overridden settings.

    ``name`` is the path that a file of its own would have in ``configs``; its last part
    is that of the work_dir. ``tests`` are tests besides the usual one, by name, with
    further settings.
    """

    name: str
    config: Path
    options: tuple[str, ...] = ()
    tests: Mapping[str, list] = {}
    tool: str = ''


class Entry(dict):
    """An entry of a list, which is formatted as its name."""

    def __str__(self) -> str:
        return self['name']


def read_papers() -> dict[str, Any]:
    return yaml.safe_load(LIST.read_text())


def read_runs(papers: Mapping) -> dict[str, Run]:
    """Return all runs by name: the configs, then those that add options to others."""
    found = {}
    for file in sorted(CONFIGS.rglob('*.py')):
        if '_base_' not in file.parts:
            name = str(file.relative_to(CONFIGS).with_suffix(''))
            found[name] = Run(name, file)
    for template, run in papers['runs'].items():
        for values in _values(template, papers['lists']):
            name, base = template.format(**values), run['of'].format(**values)
            options = (o.format(**values) for o in flattened(run['options']))
            assert name not in found, name
            of = found[base]
            found[name] = Run(name, of.config, (*of.options, *options))
    return found


def _values(template: str, lists: Mapping) -> Iterator[dict[str, Entry]]:
    """Yield an entry of each list that is named in braces, in all combinations."""
    fields = (field for _, field, _, _ in Formatter().parse(template) if field)
    names = list(dict.fromkeys(re.match(r'\w+', field)[0] for field in fields))
    entries = (
        [Entry(entry, name=str(key)) for key, entry in lists[name].items()]
        for name in names
    )
    for chosen in product(*entries):
        yield dict(zip(names, chosen, strict=True))


def flattened(options: str | list) -> Iterator[str]:
    """Yield the options of a list that may include other lists."""
    if isinstance(options, str):
        yield options
    else:
        for option in options:
            yield from flattened(option)


def options_of(options: Iterable[str], model: Mapping) -> list[str]:
    """Return options for a model, whose config key ``MODEL`` stands for."""
    key = 'model.model' if 'model' in model else 'model'
    return [option.replace('MODEL', key) for option in options]


@cache
def read_config(path: Path) -> Config:
    from mmengine.config import Config

    return Config.fromfile(path)


def figures(papers: Mapping, name: str) -> str:
    """Return the paper's figures of a run, from its row."""
    for table in papers['tables'].values():
        if name in table['rows']:
            cells = zip(table['columns'], table['rows'][name], strict=True)
            pairs = ((*c.split(', paper'), v) for c, v in cells if ', paper' in c and v)
            return ', '.join(f'{value} {column}' for column, *_, value in pairs)
    return ''


def markdown(rows: list[list[str]]) -> str:
    lines = [f'| {" | ".join(row)} |' for row in rows]
    lines.insert(1, '|' + '---|' * len(rows[0]))
    return '\n'.join(lines)


def tables(papers: Mapping) -> dict[Path, str]:
    """Return the READMEs by path, with their tables from the list."""
    runs, texts = read_runs(papers), {}
    for place, table in papers['tables'].items():
        page, name = place.split()
        path = CONFIGS / page
        rows = [table['columns']]
        for row, (label, *cells) in table['rows'].items():
            link = os.path.relpath(runs[row].config, path.parent)
            words = f', `{Path(row).name}`' if runs[row].options else ''
            rows.append([f'[{label}]({link}){words}', *cells])
        begin = f'<!-- {name}: written by tools/papers.py from papers.yml -->\n'
        text = texts.get(path) or path.read_text()
        before, rest = text.split(begin)
        noted = path.name != 'README.md' or '.md#weights)' in before
        note = '' if noted else WEIGHTS
        rest = f'{note}{END}{rest.partition(END)[2]}'
        texts[path] = f'{before}{begin}{markdown(rows)}\n{rest}'
    return texts


def page(papers: Mapping) -> str:
    """Return the page about reproducing: an introduction, then a table per paper."""
    parts = [papers['head']]
    for paper in papers['papers']:
        keys = [k for k in COLUMNS if any(k in item for item in paper['items'])]
        rows = [[COLUMNS[k] for k in keys]]
        rows += [[item.get(k, '') for k in keys] for item in paper['items']]
        parts += [f'## {paper["title"]}', markdown(rows), paper.get('after', '')]
    return '\n\n'.join(part.strip() for part in parts if part) + '\n'


def data_page() -> str:
    """Return the page about data, with the table of hours."""
    rows = [['run', 'GPU hours', 'checkpoints, GB']]
    for name, run in yaml.safe_load(HOURS.read_text())['trainings'].items():
        source = f' ({run["source"]})' if 'source' in run else ''
        number, size = run['checkpoints']
        disk = f'{number} x {size}' if number > 1 else f'{size}'
        rows.append([name, f'{run["hours"]} {run["gpu"]}{source}', disk])
    before, rest = DATA_PAGE.read_text().split(HOURS_MARK)
    return f'{before}{HOURS_MARK}{markdown(rows)}\n{END}{rest.partition(END)[2]}'


def pages() -> dict[Path, str]:
    """Return all that is generated, by path."""
    papers = read_papers()
    return tables(papers) | {PAGE: page(papers), DATA_PAGE: data_page()}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    for path, text in pages().items():
        path.write_text(text)


if __name__ == '__main__':
    main()

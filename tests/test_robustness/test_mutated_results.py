"""Files of results and costs with a fault are refused by name, or read rightly."""

import copy
import json
import math
from functools import reduce
from operator import getitem

import pytest

from snnet_mm.esta import importance_results
from snnet_mm.evaluation import cost_report, stitch_table
from snnet_mm.stitching import (
    Cost,
    CostTable,
    Selection,
    Setup,
    StitchResults,
    TwoWaySpace,
)

SPACE = TwoWaySpace((2, 3))
COSTS = CostTable(
    {i: Cost(100 + 7 * i, 10 + i, 7.5 + i, 1000) for i in SPACE.ids},
    (48, 64),
    SPACE.fingerprint,
    Setup('cpu', 1, 'float32'),
)
RESULTS = StitchResults.collect(
    SPACE, COSTS, {s.id: dict(aAcc=50.0 + s.id, mIoU=40.5 + s.id) for s in SPACE}, 20
)
SCORES = importance_results(SPACE, COSTS, {s.id: 0.5 + s.id for s in SPACE}, 2)
FILES = dict(results=RESULTS, costs=COSTS, scores=SCORES)
DATA = {name: json.loads(json.dumps(x.to_dict())) for name, x in FILES.items()}

# Of what can only be told when it is used.
WORDS = 'of another model: stitch', 'was not measured', 'wanted are costs of'


def use(name, path):
    """Everything that the tools do with such a file."""
    if name == 'costs':
        costs = CostTable.read(path)
        costs.check_same_model(COSTS, str(path))
        for cost in ('flops', 'params', 'latency', 'memory'):
            costs.column(cost)
        cost_report(SPACE, costs, SPACE.ids)
        return costs
    results = StitchResults.read(path, SPACE)
    for wanted in ('pareto', ['1G', '1M']):
        Selection(wanted, results).select(SPACE)
    results.rank_correlation()
    stitch_table(results)
    results.with_costs(COSTS)
    return results


def places(tree, path=()):
    """Where everything in a tree is, of lists the first item."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree[:1]):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def at(tree, path):
    return reduce(getitem, path, tree)


WRONG = ['text', -1, 2.5, math.nan, None, [3], {'text': 3}, 'removed']


@pytest.mark.parametrize('wrong', WRONG)
@pytest.mark.parametrize('name', FILES)
def test_a_fault_is_refused_or_does_no_harm(name, wrong, tmp_path):
    file = tmp_path / 'file.json'
    file.write_text(json.dumps(DATA[name]))
    assert use(name, file) == FILES[name]
    for *parents, key in places(DATA[name]):
        data = copy.deepcopy(DATA[name])
        parent = at(data, parents)
        old = parent.pop(key)
        if wrong != 'removed':
            parent.insert(key, wrong) if key == 0 else parent.update({key: wrong})
        file.write_text(json.dumps(data))
        try:
            read = json.loads(json.dumps(use(name, file).to_dict()))
        except ValueError as error:
            assert any(w in str(error) for w in (str(file), *WORDS)), key  # noqa: PT017
            continue
        # Units are for people; old results do not say all of the rest.
        alike = isinstance(old, int | float) and isinstance(wrong, int | float)
        alike |= type(old) is type(wrong) or None in (old, wrong)
        assert alike or wrong == 'removed' or 'units' in [*parents, key]
        kept = wrong == 'removed' or at(read, [*parents, key]) == wrong
        assert kept or read == DATA[name], (parents, key)


DAMAGES = dict(
    digits=lambda content: content.replace(b'1', b'1' * 5000, 1),
    # Of a space of another depth.
    foreign=lambda content: content.replace(SPACE.fingerprint.encode(), b'0123'),
    twice=lambda content: content.replace(b'"id": 0', b'"id": 1'),
)


@pytest.mark.parametrize('damage', DAMAGES)
@pytest.mark.parametrize('name', ['results', 'costs'])
def test_damaged_and_foreign_files_are_refused(name, damage, tmp_path):
    file = tmp_path / 'file.json'
    file.write_bytes(DAMAGES[damage](json.dumps(DATA[name]).encode()))
    with pytest.raises(ValueError, match=str(file)):
        use(name, file)

"""Budgets in words, and the best stitch within them or in time."""

import pytest

from snnet_mm.runtime.budgets import UNITS, best_within, parse_budget


@pytest.mark.parametrize(
    ('text', 'cost', 'limit'),
    [
        ('33.5G', 'flops', 33.5e9),
        ('4.1M', 'params', 4100000),  # not 4099999.9999999995
        (' 2.5 ms ', 'latency', 2.5),
        (' 12.5 %', 'share', 0.125),
    ],
)
def test_parse_budget_and_its_text(text, cost, limit):
    budget = parse_budget(text)
    assert budget == (cost, limit)
    assert str(budget) == text.replace(' ', '')
    assert parse_budget(str(budget)) == budget


def test_budget_of_share_is_flops():
    assert parse_budget('12.5%').of([40, 200, 3]) == ('flops', 25)
    assert parse_budget('2G').of([40]) == ('flops', 2e9)


def test_unit_writes_budget_that_allows_cost():
    texts = {394_801: '0.0003949G', 12_345_000_000_000: '12350G', 10**9: '1G'}
    for flops, text in (texts | {3 * 1.1e9: '3.3G'}).items():
        assert UNITS['flops'].budget(flops) == text
        assert parse_budget(text).limit >= flops * (1 - 1e-12)


@pytest.mark.parametrize('text', ['120', 120, '3MB', '0.0ms', '', '1e3G', '-5%', '%'])
def test_parse_budget_invalid_text(text):
    with pytest.raises(ValueError, match=f'budget={text!r} is .*option: --budget'):
        parse_budget(text)


def test_best_within_is_last_that_fits():
    front = dict(a=1, b=2, c=3)
    assert [best_within(front, limit) for limit in (0.5, 1, 2.5, 9)] == [None, *'abc']

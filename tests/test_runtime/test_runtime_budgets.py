"""Budgets in words, and the best stitch within them."""

import pytest

from snnet_mm.runtime.budgets import UNITS, best_within, parse_budget


@pytest.mark.parametrize(
    ('text', 'cost', 'limit'),
    [
        ('33.5G', 'flops', 33.5e9),
        ('4.1M', 'params', 4100000),  # not 4099999.9999999995
        (' 2.5 ms ', 'latency', 2.5),
        ('300MB', 'memory', 300e6),
    ],
)
def test_budgets_are_read_and_written(text, cost, limit):
    budget = parse_budget(text)
    assert budget == (cost, limit)
    assert str(budget) == UNITS[cost].budget(limit)
    assert parse_budget(str(budget)) == budget


@pytest.mark.parametrize(
    ('text', 'limit'), [('50%', 100), (' 12.5 %', 25), ('100%', 200), ('0.5%', 1)]
)
def test_shares_are_of_the_largest_flops(text, limit):
    budget = parse_budget(text)
    assert str(budget) == text.replace(' ', '')
    assert budget.of([40, 200, 3]) == ('flops', limit)
    assert parse_budget('2G').of([40]) == ('flops', 2e9)


def test_a_written_budget_buys_the_cost():
    texts = {394_801: '0.0003949G', 12_345_000_000_000: '12350G', 10**9: '1G'}
    for flops, text in (texts | {3 * 1.1e9: '3.3G'}).items():
        assert UNITS['flops'].budget(flops) == text
        assert parse_budget(text).limit >= flops * (1 - 1e-12)


@pytest.mark.parametrize(
    'text', ['120', 120, '3KB', '0.0ms', '', 'nanG', '1e3G', '0%', '-5%', '%']
)
def test_nonsense_is_refused_and_says_what_is_allowed(text):
    words = rf"budget={text!r} is .*'120G' \(multiply-accumulates.*option: --budget"
    with pytest.raises(ValueError, match=words):
        parse_budget(text)


def test_parse_budget_refuses_unknown_costs():
    known = 'flops', 'latency'
    assert parse_budget('50%', '--budgets', known) == ('share', 0.5)
    words = r"budgets='3M' .* in %, G, ms .option: --budgets"
    with pytest.raises(ValueError, match=words):
        parse_budget('3M', '--budgets', known)


def test_best_within_is_the_last_that_fits():
    front = dict(a=1, b=3, c=2)  # times that were learnt need not ascend
    assert [best_within(front, limit) for limit in (0.5, 1, 2, 9)] == [None, *'acc']

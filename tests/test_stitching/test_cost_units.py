import pytest

from snnet_mm.stitching import UNITS, parse_budget


@pytest.mark.parametrize(
    ('text', 'cost', 'limit'),
    [
        ('120G', 'flops', 120e9),
        ('.5G', 'flops', 0.5e9),
        ('60M', 'params', 60e6),
        ('25ms', 'latency', 25),
        (' 2.5 ms ', 'latency', 2.5),
        ('300MB', 'memory', 300e6),
    ],
)
def test_budgets(text, cost, limit):
    assert parse_budget(text) == (cost, limit)


@pytest.mark.parametrize(
    'text',
    ['120', 120, '3KB', '3g', '0.0ms', '-3G', '', 'G', 'nanG', '1,5G', '1e3G'],
)
def test_nonsense_is_refused_and_says_what_is_allowed(text):
    words = rf"budget={text!r}; .*'120G' \(multiply-accumulates.*option: --budget"
    with pytest.raises(ValueError, match=words):
        parse_budget(text)


@pytest.mark.parametrize('text', ['33.5G', '0.56M', '25ms', '3MB'])
def test_costs_are_written_as_budgets(text):
    budget = parse_budget(text)
    assert UNITS[budget.cost].budget(budget.limit) == str(budget) == text


@pytest.mark.parametrize(
    ('cost', 'value', 'cell'),
    [
        ('flops', 1_234_567, '0.00123'),
        ('flops', 0, '0.00'),
        ('latency', 25, '25.00'),
        ('memory', 7_654_321, '7.7'),
    ],
)
def test_cells_of_tables(cost, value, cell):
    assert UNITS[cost].cell(value) == cell

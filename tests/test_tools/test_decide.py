"""tools/research/decide.py: ways to choose and fit chains, by known cases."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from small import write_trained

from snnet_mm.elastic import make_elastic
from snnet_mm.elastic.knapsack import Option
from snnet_mm.models import LeastSquares

sys.path.append(str(Path(__file__).parents[2] / 'tools' / 'research'))
import decide  # noqa: E402
import decide_ways as ways  # noqa: E402


def test_decide_tests_the_chains_of_make_elastic(tmp_path, monkeypatch, capsys):
    config, checkpoint = write_trained('seg', tmp_path)
    options = dict(num_images=6, sizes=(1,), budgets='90%,80%', force=True)
    table = make_elastic(
        config, checkpoint, tmp_path / 'elastic', device='cpu', say=str, **options
    )
    monkeypatch.setattr(ways, 'CHOOSING', 6)
    folder = tmp_path / 'decide'
    command = ['decide.py', config, checkpoint, checkpoint, '--work-dir', folder]
    command += ['--images', 6, '--budgets', '90%', '80%', '--ways', 'rarity']
    command += ['plain', 'rarity+norm', 'rarity+oas', 'rarity+gram', 'rarity+maps']
    monkeypatch.setattr(sys, 'argv', [*map(str, command), '--traceback'])
    decide.main()
    found = decide.ImageScores.read(folder / '1' / 'rarity_6.npz')
    scores = found.scores(np.ones((1, found.numerators.shape[1])))[0]
    wanted = [row.metrics['mIoU'] for row in table.rows]
    assert scores == pytest.approx(wanted, abs=0.02)
    assert len({*wanted}) == 3
    lines = capsys.readouterr().out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith('rarity '))
    of_network = f'{wanted[0]:.2f}'
    assert lines[first].split()[1:] == ['network', f'{of_network},', of_network]
    by_way = [line.split()[0] for line in lines[first + 1 :]]
    assert by_way == 2 * command[-6:]
    (folder / '0' / 'measured.pkl').unlink()
    decide.main()  # tests nothing again
    assert capsys.readouterr().out.splitlines() == lines[first:]


def test_errors_with_map_are_those_of_fits():
    x, h = torch.randn(2, 90, 3), torch.randn(2, 90, 8)
    y = 1 + x @ torch.randn(3, 4) + h @ torch.randn(8, 4) + torch.randn(2, 90, 4)
    fit, both = LeastSquares(11, 4, ridge=1e-4), torch.cat([x, h], 2)
    fit.update(both, y)
    errors = ways.errors_with_map(fit, 3, group=2)
    assert [*errors] == [0, 1, 2, 3, 4]
    for units, error in errors.items():
        weight, bias = fit.x_to_y(torch.arange(3 + 2 * units))
        found = both[..., : 3 + 2 * units].double() @ weight.T + bias
        wanted = (found - y).square().sum(2).mean().item()
        assert error == pytest.approx(wanted, rel=5e-3)  # with the ridge's share


def test_oas_shrinks_correlations_by_the_number_of_samples():
    x, y = torch.randn(400, 5) @ torch.randn(5, 5), torch.randn(400, 2)
    fit = LeastSquares(5, 2, False)
    fit.update(x, y)
    weight, bias = ways.solve_oas(fit.sums, 10**9)
    for found, wanted in zip((weight, bias), fit.x_to_y(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    weight, bias = ways.solve_oas(fit.sums, 1)  # each channel alone
    x, y = x.double() - x.double().mean(0), y.double()
    wanted = (x.T @ (y - y.mean(0)) / x.square().sum(0)[:, None]).T
    torch.testing.assert_close(weight, wanted, rtol=1e-5, atol=1e-6)


def test_form_finds_plans_whose_changes_do_not_add_up():
    # Steps 0 and 1 change the predictions in the same direction, 2 almost in another.
    options = [[Option(2, 4, 0), Option(1, 2, 0.1), Option(0, 1, 0.4)]] * 3
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([0.1, 1.0])
    changes = {(i, units): one for i in (0, 1) for units in (0, 1)}
    measured = ways.Measured(changes=changes | {(2, 1): other, (2, 0): other})
    form = ways.Form(measured, options)
    assert form([0, 2, 1]) == pytest.approx(0.5 + 2 * 0.2 * 0.1 / 1.01**0.5)
    assert form([1, 1, 0]) == pytest.approx(0.4)
    plans = product(range(3), repeat=3)
    known = {p: sum(options[i][k].cost for i, k in enumerate(p)) for p in plans}
    for limit in range(3, 13):
        best = min((p for p, cost in known.items() if cost <= limit), key=form)
        found = form.at(form.best_plan(limit, [0, 1]))
        assert known[tuple(found)] <= limit
        assert form(found) == pytest.approx(form(best), abs=1e-6)

"""tools/research/decide.py: ways to choose and fit chains, by known cases."""

import json
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from small import write_trained

from snnet_mm.elastic import make_elastic
from snnet_mm.elastic.knapsack import Option
from snnet_mm.models import LeastSquares
from snnet_mm.models.init_model import init_model
from snnet_mm.models.layers.narrow_branch import UnitOrder

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
    monkeypatch.setattr(decide, 'IMAGES', 6)
    folder = tmp_path / 'decide'
    command = ['decide.py', config, checkpoint, checkpoint, '--work-dir', folder]
    command += ['--budgets', '90%', '80%', '--ways', 'rarity', 'plain', 'rarity+3']
    command += ['rarity+norm', 'rarity+oas', 'rarity+gram', 'rarity+maps']
    monkeypatch.setattr(sys, 'argv', [*map(str, command), '--traceback'])
    decide.main()
    rows = json.loads((folder / 'decide.json').read_text())['rows']
    first = [row for row in rows if row['way'] == 'rarity']
    wanted = [row.metrics['mIoU'] for row in table.rows]
    assert [row['value'] for row in first] == pytest.approx(wanted, abs=0.02)
    assert [row['budget'] for row in first] == ['network', '90%', '80%']
    assert len({*wanted}) == 3
    assert all(row['seeds'] == [row['value']] * 2 for row in rows)
    assert [row['way'] for row in rows] == ['rarity', *2 * command[-7:]]
    changed = {r['way'] for r in rows if r['value'] and r['way'] != 'rarity'}
    assert changed == {*command[-6:-1]}  # maps are dear here
    (folder / '0' / 'measured.pkl').unlink()
    written = capsys.readouterr().out.splitlines()
    decide.main()  # tests nothing again
    assert capsys.readouterr().out.splitlines() == written[-len(rows) :]


@torch.no_grad()
def test_chain_fits_a_map_beside_units(tmp_path):
    chains = ways.Chains(*loaded(tmp_path))
    view, images = chains.view, torch.randn(6, 3, 64, 64)
    before = view.embed(images)
    after = view.run_block(view.run_block(before, 0), 1)
    plan, order = (0, -32, *view.widths[2:]), UnitOrder(128)
    chain = ways.Chain(chains.model, {1: order}, plan, [0], False, [before])
    weights = torch.rand(before.tokens.shape[:2])
    for i in range(2):
        chain.fit_step(i, [after], [weights])  # as if step 0 led there, too
    x = chain.layers[0].map_state(before)
    h = ways.NarrowBranch(view[1], 32, len(x.tokens[0, 0]), order, 1).hidden(x)
    inputs = torch.cat([x.tokens, h, torch.ones_like(h[..., :1])], 2).double()
    root = weights[..., None].double().sqrt()
    pair = (
        (root * inputs).flatten(0, 1),
        (root * (after.tokens - x.tokens)).flatten(0, 1),
    )
    wanted = x.tokens + inputs @ torch.linalg.lstsq(*pair).solution
    (found,) = chain.states
    assert (found.tokens - wanted).norm() < 0.01 * (wanted - x.tokens).norm()
    last = chain.run(before)[view.depth - 1]
    for i in range(2, view.depth):
        found = view.run_block(found, i)
    torch.testing.assert_close(last.tokens, found.tokens, rtol=1e-4, atol=1e-4)


def loaded(folder):
    config, checkpoint = write_trained('seg', folder)
    cfg = Config.fromfile(config)
    return cfg, init_model(cfg, str(checkpoint), device='cpu')


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

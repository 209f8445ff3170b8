"""Methods without training, each by a property that it must have."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small import write_trained

from snnet_mm.costs import cost_table
from snnet_mm.elastic.convert import give_chains
from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.models.init_model import init_model
from snnet_mm.stitching import StitchTable

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / 'tools' / 'research'))
import untrained  # noqa: E402
import untrained_methods as methods  # noqa: E402
import untrained_runs as runs  # noqa: E402
from untrained_network import Attention, Network, folded, projection  # noqa: E402

SHARES = 0.9, 0.75


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    return write_trained('seg', tmp_path_factory.mktemp('seg'))


@pytest.fixture
def build(files):
    """Builds a segmentor of four blocks with 2 heads and 128 neurons."""

    def build(change=lambda blocks: None, shares=SHARES):
        model = init_model(*files, device='cpu')
        with torch.no_grad():
            change(model.backbone.blocks)
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(15, 3, 8, 8, generator=generator)
        images = F.interpolate(noise, (64, 64), mode='bilinear')
        return Network(model, images[:12].split(5), images[12:].split(2), shares)

    return build


def last_map(net, layers=None):
    """The map of the images that predictions are compared on."""
    run = layers if callable(layers) else lambda x: net.run(layers or {}, x)
    with torch.no_grad():
        return torch.cat([run(images)[-1] for images in net.compared])


def close(found, wanted, rtol=1e-4):
    return (found - wanted).norm() < rtol * wanted.norm()


def test_run_without_layers_equals_backbone(build):
    net = build()
    with torch.no_grad():
        wanted = torch.cat([net.model.backbone(x)[-1] for x in net.compared])
    assert torch.equal(last_map(net), wanted)
    assert net.cost({}) == net.flops == cost_table(net.model, (64, 64))[0].flops


def test_layers_cost_as_much_as_chains(build):
    net = build()
    layers = {0: net.narrow(0, torch.arange(1)), 3: net.narrow(3, torch.arange(32))}
    layers |= net.gap(2, 3)
    give_chains(net.model, ['0:1/128 1:2/32 2:0/0 3:0/0'])
    assert net.cost(layers) == cost_table(net.model, (64, 64))[1].flops


def test_budgets_of_branches_leave_heads_alone(build, files):
    net = build()
    model = init_model(*files, device='cpu')
    own = Network(model, net.fitted, net.compared, [0.5], of_branches=True)
    none = own.cost(dict.fromkeys(own.branches(), methods.skip))
    assert own.limit(0) == none
    assert own.limit(0.5) == (none + own.flops) / 2
    assert net.limit(0.5) == net.flops / 2


def test_whole_branches_from_their_weights_equal_the_network(build):
    net = build(lambda blocks: [b.ls1.gamma.uniform_() for b in with_scale(blocks)])
    state = net.view.embed(net.compared[0])
    for i in net.branches():
        wanted = net.view.run_block(state, i).tokens
        branch = net.view[i]
        layer = net.narrow(i, torch.arange(branch.units), projection(branch))
        assert close(layer(state).tokens, wanted)
        if branch.kind == 'attention':
            assert close(Attention(branch)(state).tokens, wanted)


def with_scale(blocks):
    return [block for block in blocks if hasattr(block.ls1, 'gamma')]


@torch.no_grad()
def test_corp_at_100_percent_equals_network(build):
    net = build()
    assert close(last_map(net, methods.corp_layers(net, 1.0)), last_map(net))


@torch.no_grad()
def test_corp_compensation_reduces_the_error(build, monkeypatch):
    net = build()
    whole = last_map(net)
    compensated = last_map(net, methods.corp_layers(net, 0.6))
    monkeypatch.setattr(
        methods, 'folded', lambda fitted, kept, *_: folded(fitted, kept)
    )
    factors = lambda kept, *_: 2 * [torch.eye(len(kept)).double()]  # noqa: E731
    monkeypatch.setattr(methods, 'score_factors', factors)
    cut = last_map(net, methods.corp_layers(net, 0.6))
    assert (compensated - whole).norm() < 0.7 * (cut - whole).norm()


def test_folded_is_least_squares_of_the_lost_channels():
    h = torch.randn(50, 6, dtype=torch.double) @ torch.randn(6, 6).double()
    weight, bias, kept = torch.randn(3, 6), torch.randn(3), torch.tensor([0, 2, 5])
    mean = h.mean(0)
    cov = (h - mean).T @ (h - mean) / len(h)
    found = folded((weight, bias), kept, mean, cov)
    x = torch.cat([h[:, kept], torch.ones(50, 1)], 1)
    wanted = torch.linalg.lstsq(x, h @ weight.double().T + bias).solution
    assert torch.allclose(found[0].T.double(), wanted[:3], atol=1e-5)
    assert torch.allclose(found[1].double(), wanted[3], atol=1e-5)


def test_score_factors_are_least_squares_of_all_scores():
    x = torch.randn(30, 5, dtype=torch.double) @ torch.randn(5, 5).double()
    kept, gram = torch.tensor([1, 4]), x.T @ x
    u, v = methods.score_factors(kept, gram, gram, x.sum(0), 30)
    # Queries equal keys, so the best change of the scores is symmetric.
    s = x[:, kept]
    basis = torch.einsum('ia,jb->ijab', s, s).flatten(0, 1).flatten(1)
    best = torch.linalg.lstsq(basis, (x @ x.T).flatten()).solution.view(2, 2)
    assert torch.allclose(u @ v.T, best, atol=5e-3)  # for the ridge


def test_shrinkage_falls_with_the_number_of_tokens():
    cov = torch.diag(torch.tensor([4.0, 1, 1, 1]))
    few, many = (methods.shrinkage(cov, n) for n in (10, 1e6))
    assert 0 < many < 1e-4 < few < 7 / 4
    # rho is (trace(S)^2 + (1 - 2/p) trace(S^2)) / ((n + 1 - 2/p) (trace(S^2) - ...))
    assert few == pytest.approx((49 + 0.5 * 19) / (10.5 * (19 - 49 / 4)) * 7 / 4)


def kill(blocks):
    blocks[1].mlp.fc2.weight[:, 7] = 0
    blocks[2].attn.proj.weight[:, 16:] = 0


def test_dead_units_have_the_least_gradients_and_leave_first(build):
    net = build(kill)
    scores = methods.gradient_scores(net)
    assert all((s >= 0).all() for s in scores.values())
    assert scores[3].argmin() == 7
    assert scores[3][7] == 0
    assert scores[4].argmin() == 1
    assert scores[4][1] == 0
    kept = methods.best_units(net, scores, 1 / 512, 1 / 8)
    lost = {i: {*range(net.view[i].units)} - {*k.tolist()} for i, k in kept.items()}
    assert {i: units for i, units in lost.items() if units} == {3: {7}, 4: {1}}
    layers = methods.cut(net, kept)
    assert [*layers] == [3, 4]
    assert close(last_map(net, layers), last_map(net))
    most = methods.best_units(net, scores, 1, 1)
    assert {len(k) for k in most.values()} == {1, 6}  # a head, 5 % of 128 neurons


@torch.no_grad()
def test_correction_is_that_of_sparsegpt(build):
    net = build()
    units = torch.tensor([3, *range(20, 120)])
    layers = methods.cut(net, {1: units}, corrected=True)
    state = net.view.embed(net.compared[0])
    found = layers[1](state).tokens - state.tokens
    # Columns are removed one by one, with the update of all that follow.
    gram = net.moments[1].gram
    weight, bias = projection(net.view[1])
    lost = [i for i in range(128) if i not in units.tolist()]
    order = torch.tensor([*lost, *units.tolist()])
    damped = gram + 0.01 * gram.diagonal().mean() * torch.eye(128)
    inverse = torch.linalg.inv(damped[order][:, order])
    root, weight = torch.linalg.cholesky(inverse).T, weight[:, order].double()
    for i in range(len(lost)):
        weight = weight - (weight[:, i] / root[i, i]).outer(root[i])
    left = weight[:, len(lost) :].float()
    hidden = net.hidden(1, state)[..., units]
    assert close(found, F.linear(hidden, left, bias), 1e-3)
    plain = methods.cut(net, {1: units})
    whole = net.view.run_block(state, 1).tokens - state.tokens
    cut = plain[1](state).tokens - state.tokens
    assert (found - whole).norm() < 0.8 * (cut - whole).norm()


def test_xnes_minimises_within_its_evaluations():
    points = []

    def loss(point):
        points.append(point)
        return float(np.square(point - 3).sum())

    best = methods.xnes(loss, np.zeros(4), 60)
    assert len(points) == 60
    assert loss(best) == min(map(loss, points[:60])) < 36 / 10


def constant(blocks):
    for block in blocks:
        block.mlp.fc1.weight[:64] = 0


def test_vbp_removes_constant_neurons_without_error(build):
    net = build(constant)
    one, *_ = methods.vbp(net)
    assert one.setting == '75.0% of neurons kept'
    assert one.flops <= 0.9 * net.flops
    assert close(last_map(net, one.run), last_map(net), 1e-3)


def pass_on(blocks):
    for layer in (blocks[1].attn.proj, blocks[1].mlp.fc2):
        layer.weight.zero_()
        layer.bias.zero_()


def test_affine_map_replaces_blocks_that_are_affine(build):
    net = build(pass_on)
    with torch.no_grad():
        assert close(last_map(net, net.gap(1, 1)), last_map(net), 1e-2)
        assert not close(last_map(net, net.gap(2, 2)), last_map(net), 1e-2)
        one, *_ = methods.one_map(net)
    assert one.setting == 'blocks 1 to 1'


def test_branches_without_effect_are_skipped_first(build):
    net = build(pass_on)
    order = methods.skipped_branches(net)
    assert {*order[:2]} == {2, 3}
    assert sorted(order) == net.branches()
    with torch.no_grad():
        skipped = dict.fromkeys(order[:2], methods.skip)
        assert torch.equal(last_map(net, skipped), last_map(net))
        errors = [
            (last_map(net, {i: methods.skip}) - last_map(net)).norm() for i in range(8)
        ]
    assert order[2] == min({*range(8)} - {2, 3}, key=lambda i: errors[i])


def test_tome_that_merges_nothing_equals_the_network(build):
    net = build()
    assert close(last_map(net, methods.Merged(net, 4, 0)), last_map(net))
    few = methods.Merged(net, 4, 12)
    assert net.cost(few) < 0.9 * net.cost({})


def test_matched_merges_the_most_alike():
    # Tokens 2 and 3 are alike, and so is the cls token 0 to token 1, but it stays.
    keys = torch.tensor([[[1.0, 0], [1, 0], [0, 1], [0.1, 1], [-1, 0.5]]])
    place = methods.matched(keys, 1)
    assert place.tolist() == [[0, 2, 3, 3, 1]]
    x = torch.arange(5.0).view(1, 5, 1)
    sizes = torch.tensor([1.0, 1, 3, 1, 1]).view(1, 5, 1)
    x, sizes = methods.merge(x, sizes, place)
    assert x.flatten().tolist() == [0, 4, 1, (2 * 3 + 3) / 4]
    assert sizes.flatten().tolist() == [1, 1, 1, 4]
    assert methods.matched(keys, 0).tolist() == [[0, 3, 1, 4, 2]]


def test_clusters_of_equal_tokens_reconstruct_them():
    halves = torch.tensor([1.0, 1, 5, 5]).expand(1, 4, 4).reshape(1, 16, 1)
    centres, weights = methods.cluster(halves, (4, 4), (2, 2))
    assert torch.allclose(weights.sum(-1), torch.ones(1, 16))
    assert torch.allclose(centres.flatten(), torch.tensor([1.0, 5, 1, 5]), atol=1e-3)
    assert torch.allclose(weights @ centres, halves, atol=1e-3)


def test_size_plans_are_the_largest_within_budgets(build):
    net = build(shares=(0.9, 0.6, 0.01))
    with torch.no_grad():
        plans = methods.size_plans(net)
    assert plans == {0.9: '0.8750x', 0.6: '0.7500x'}
    give_chains(net.model, ['0.875x', '0.75x'])
    table = cost_table(net.model, net.size)
    for i, share in ((1, 0.9), (2, 0.6)):
        assert table[i].flops <= net.limit(share)


@torch.no_grad()
def test_block_plans_skip_blocks_of_least_effect_first(build):
    net = build(pass_on, shares=(0.99, 0.5))
    plans = methods.block_plans(net)
    assert plans[0.99] == '1:0/0'
    assert '1:0/0' in plans[0.5]
    assert len(plans[0.5].split()) > 1
    assert methods.runs_of([0, 2, 3, 5]) == [(0, 0), (2, 3), (5, 5)]


def test_differences_are_from_the_line_of_our_budgets(tmp_path):
    # One class, four equal images: IoU of 80 % at 4 GFLOPs, 60 % at 2, 75 % at 3.
    def write(name, rows):
        counts = np.array([[[[hits], [100]]] * 4 for *_, hits in rows], float)
        about = [
            runs.row_of(kind, share, '', flops, (8, 8), dict(mIoU=hits))
            for kind, share, flops, hits in rows
        ]
        (tmp_path / f'{name}.json').write_text(json.dumps(about))
        ids, parts = tuple(range(len(rows))), np.moveaxis(counts, 2, 0)
        images = runs.ImageScores('mIoU', ids, *parts, 100)
        images.save(tmp_path / f'{name}.npz')

    write('ours', [('network', 1, 4e9, 80), ('ours', 0.5, 2e9, 60)])
    write('tome', [('ToMe', 0.75, 3e9, 75), ('ToMe', 0.4, 1e9, 20)])
    lines = {
        (line['seed'], line['kind'], line['budget']): line
        for line in runs.lines_of([tmp_path, tmp_path], ['ours', 'tome'])
    }
    for seed in ('0', 'mean'):
        tome = lines[seed, 'ToMe', '75%']
        assert [tome[k] for k in ('against', 'low', 'high')] == ['5', '5', '5']
        assert (tome['gflops'], tome['score'], tome['share']) == ('3', '75', '93.75')
        assert lines[seed, 'ToMe', '40%']['against'] == ''  # cheaper than all of ours
        assert lines[seed, 'ours', '50%']['against'] == ''
    assert len(lines) == 3 * 4


@pytest.mark.slow
def test_all_methods_meet_budgets_and_go_on(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(methods, 'EVALUATIONS', 3)
    monkeypatch.setattr(runs, 'TRAINED', 0.75)
    table, method_names = tmp_path / 'table.csv', untrained.METHODS
    command = ['untrained.py', *map(str, files), '--run', 'toy', '--network', 'a']
    command += ['--data', 'b', '--budgets', '90', '75', '--images', '8']
    command += ['--work-dir', str(tmp_path), '--table', str(table)]
    monkeypatch.setattr(sys, 'argv', [*command, '--methods', 'vbp'])
    untrained.main()
    assert {line['kind'] for line in csv.DictReader(table.open())} == {
        'network', 'ours', 'VBP',
    }  # fmt: skip
    trained, train = [], runs.sn.train

    def first_iteration(*args, cfg_options):
        cfg_options['train_cfg.max_iters'] = 1
        train(*args, cfg_options=cfg_options)
        raise KeyboardInterrupt

    def rest(*args, **options):
        trained.append(options)
        return train(*args, **options)

    monkeypatch.setattr(sys, 'argv', [*command, '--methods', 'trained'])
    monkeypatch.setattr(runs.sn, 'train', first_iteration)
    with pytest.raises(KeyboardInterrupt):
        untrained.main()
    command += ['--methods', *method_names]
    monkeypatch.setattr(sys, 'argv', command)
    monkeypatch.setattr(runs.sn, 'train', rest)
    untrained.main()
    assert trained == [dict(resume=True)]
    lines = [*csv.DictReader(table.open())]
    kinds = {line['kind'] for line in lines}
    assert kinds == {
        'network', 'ours', 'ours, one size', 'whole blocks', 'smaller images', 'CORP',
        'SnapViT', 'SnapViT, corrected', 'VBP', 'one affine map', 'branches skipped',
        'Expedit', 'ToMe', 'fp32', 'int8', 'trained',
    }  # fmt: skip
    whole = next(line for line in lines if line['kind'] == 'network')
    assert whole['share'] == '100'
    assert float(whole['gflops']) > 0
    for line in lines:
        share = float(line['gflops']) / float(whole['gflops'])
        assert share <= float(line['budget'][:-1]) / 100 + 1e-4, line
    made = {n: (tmp_path / 'toy/0' / f'{n}.json').stat().st_mtime for n in method_names}
    before = table.read_text()
    untrained.main()
    assert before == table.read_text()
    for name, time in made.items():
        assert (tmp_path / 'toy/0' / f'{name}.json').stat().st_mtime == time
    for file in (tmp_path / 'toy/0').glob('*.npz'):
        scores = ImageScores.read(file)
        rows = json.loads(file.with_suffix('.json').read_text())
        wanted = [row['metrics']['mIoU'] for row in rows]
        every = np.ones((1, scores.numerators.shape[1]))
        assert scores.scores(every)[0] == pytest.approx(wanted, abs=0.006), file
    own = StitchTable.read(tmp_path / 'toy/0/ours/stitches.json')
    found = [line for line in lines if line['kind'] == 'ours']
    assert float(found[0]['score']) == pytest.approx(own[1].metrics['mIoU'], rel=1e-4)
    monkeypatch.setattr(sys, 'argv', [*command, '--images', '9'])
    with pytest.raises(ValueError, match='option: --run'):
        untrained.main()

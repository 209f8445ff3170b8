"""Which stitch and precision a runtime runs; graphs here predict their stitch id."""

import json
import pickle
import re
import threading
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from manifests import MANIFEST, VERIFIED

from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.device import PROVIDERS, processor, usable_cores
from snnet_mm.runtime.runtime import MAX_ROUNDS, ROUNDS, WARM_UP

HOME = 'snnet_mm.runtime.runtime'
MS = {0: 10, 2: 20, 1: 40}
FP32 = {('fp32', i): ms for i, ms in MS.items()}
FLOPS = {i: ms * 10**7 for i, ms in MS.items()}
SCORES = dict(zip(MS, (40, 42, 43), strict=True))
IMAGE = np.zeros((8, 8, 3), np.uint8)


class Bundle:
    """A folder with a manifest; notes the graphs that are opened and run."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.opened, self.ran, self.ms = folder, [], [], dict(FP32)
        self.steps = [dict(step='channels', order='RGB')]
        self.precisions = 'fp32', 'int8'
        monkeypatch.setattr(StitchRuntime, '_open', lambda _, key: self.open(key))

    def open(self, key):
        self.opened.append(key)

        def run(images):
            self.ran.append((key, len(images)))
            maps = np.zeros((len(images), 3, 8, 8), np.float32)
            maps[:, key[1]] = 1
            return [maps]

        return run

    def runtime(self, lost=(), metric='mIoU', scores=SCORES, **settings):
        """Open the folder with scores of stitches, and what files lost of them."""
        lost, stitches = dict(lost), []
        for i, score in scores.items():
            files = []
            for precision in self.precisions:
                found = lost.get((precision, i))
                if found is not None:
                    loss, interval = found
                    found = VERIFIED | dict(pytorch=score, lost=loss, interval=interval)
                    found['value'] = score - loss
                about = dict(
                    format='onnx', precision=precision, name=f'{i} {precision}'
                )
                files.append(about | dict(weights=None, verified=found))
            metrics = {} if score is None else {metric: score}
            about = dict(id=i, flops=FLOPS[i], params=1000 * MS[i], metrics=metrics)
            stitches.append(about | dict(files=files))
        resize = dict(step='resize', align_corners=False)
        after = [resize, dict(step='argmax', axis=1)]
        manifest = MANIFEST | dict(
            input=dict(shape=['batch', 3, 8, 8]),
            caller=dict(before=self.steps, after=after),
            largest_flops=2 * max(FLOPS.values()),
            ranked_by=dict(metric=metric, higher_is_better=metric == 'mIoU'),
            stitches=stitches,
        )
        (self.folder / 'manifest.json').write_text(json.dumps(manifest))
        return StitchRuntime(self.folder, **settings)


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A bundle whose graphs take their time."""
    bundle = Bundle(tmp_path, monkeypatch)
    times = lambda _, keys: {key: bundle.ms[key] for key in keys}  # noqa: E731
    monkeypatch.setattr(StitchRuntime, '_measure', times)
    return bundle


def active(runtime):
    return runtime.active_precision, runtime.active_stitch


@pytest.mark.parametrize(
    ('budget', 'stitch'),
    {
        '25ms': 2, '40ms': 1, '10ms': 0, '0.2G': 2, '0.012M': 0, '100%': 1, '49%': 2,
    }.items(),
)  # fmt: skip
def test_set_budget_selects_best_stitch(measured, budget, stitch):
    """Percent are of the largest stitch of the model, which the bundle lacks."""
    runtime = measured.runtime()
    assert active(runtime) == ('fp32', 1)
    assert runtime.set_budget(budget) == runtime.active_stitch == stitch
    assert (runtime(IMAGE) == stitch).all()


def test_pickled_runtime_has_arguments_and_selection(measured):
    losses = {('int8', i): (0.2, [-0.1, 0.3]) for i in MS}
    measured.ms |= {('int8', i): ms / 2 for i, ms in MS.items()}
    settings = dict(threads=3, sessions=5, image_size=(16, 8))
    runtime = measured.runtime(losses, **settings)
    runtime.set_stitch(2, 'int8')
    copied = pickle.loads(pickle.dumps(runtime))
    assert active(copied) == active(runtime) == ('int8', 2)
    assert copied.threads == 3
    assert copied.request == runtime.request
    assert copied.latencies() == runtime.latencies()
    assert copied._session.cache_info().maxsize == 5
    # A frame rate is held there as well.
    runtime.hold(1000 / 25)
    held = pickle.loads(pickle.dumps(runtime))
    assert active(held) == ('int8', 1)
    assert held._active is not runtime._active
    # But not with the stitches of another export.
    content = pickle.dumps(runtime)
    measured.runtime()
    with pytest.raises(ValueError, match='expected the bundle that was pickled, not'):
        pickle.loads(content)


def test_request_tells_predictions_apart(measured):
    runtime = measured.runtime()
    known = runtime.request
    assert known == dict(runtime.request, stitch=1, precision='fp32')
    runtime.set_stitch(0, 'fp32')
    assert runtime.request == known | dict(stitch=0)
    runtime = measured.runtime(scores=dict(SCORES) | {1: 44})
    assert runtime.request.keys() == known.keys()
    assert runtime.request['bundle'] != known['bundle']


def test_wrong_selections_are_refused(measured):
    runtime = measured.runtime()
    for call, words in (
        (lambda: runtime.set_budget('9ms'), 'at least 10ms, the cost of stitch 0 in'),
        (
            lambda: runtime.set_budget('3MB'),
            "budget='3MB' is .*a positive number with a unit",
        ),
        (lambda: runtime.set_budget(None), 'budget=None is invalid'),
        (lambda: runtime.set_budget('9ms', 'fastest'), "'fastest' is invalid"),
        (lambda: runtime.set_stitch(3), 'stitch_id=3 is .* 0, 2, 1'),
        (lambda: runtime.set_stitch(1, 'int8'), "precision='int8' is invalid"),
        (lambda: measured.runtime(precision='int4'), "precision='int4' is invalid"),
        (lambda: measured.runtime(sessions=0), 'sessions=0 is invalid'),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    assert runtime.set_budget('9ms', fallback='cheapest') == 0


def test_no_call_opens_a_graph(measured):
    """Held at 15 ms, the stitch of 10 ms runs; it takes far less, so the best comes."""
    runtime = measured.runtime()
    for act, wanted, stitches in (
        (lambda: None, [1], [1, 1]),
        (lambda: runtime.set_budget('25ms'), [1, 2], [2, 2]),
        (lambda: runtime.hold(fps=1000 / 15), [1, 2, 0], [0, 1]),
        (lambda: runtime.hold(None), [1, 2, 0], [1, 1]),
    ):
        act()
        found = [runtime.active_stitch]
        for _ in range(40):
            runtime(IMAGE)
        assert [*found, runtime.active_stitch] == stitches
        assert measured.opened == [('fp32', i) for i in wanted]


def test_least_recent_of_many_graphs_is_opened_again(measured):
    runtime = measured.runtime(sessions=2)
    for stitch in (2, 1, 0, 2):
        runtime.set_stitch(stitch)
    assert [i for _, i in measured.opened] == [1, 2, 0, 2]


def test_scores_rank_stitches(measured):
    """A stitch without a score is never chosen; without any, more FLOPs are better."""
    runtime = measured.runtime(metric='RMSE', scores={0: None, 2: 1, 1: 2})
    assert runtime.set_budget('1G') == 2
    with pytest.raises(ValueError, match='stitch 2 in fp32') as refused:
        runtime.set_budget('0.000001G')
    least = re.search(r'at least (\S+G)', str(refused.value))[1]
    assert runtime.set_budget(least) == 2
    assert measured.runtime(scores=dict.fromkeys(MS)).set_budget('1G') == 1


# In int8, stitch 2 is equal, 0 surely worse, and of 1 too little is known.
LOST = {('int8', 0): (0.2, [-0.3, -0.1]), ('int8', 2): (0.2, [-0.5, 0.1])}
LOST |= {('int8', 1): (2, [-5, 1])}


@pytest.mark.parametrize(('factor', 'best'), [(0.5, 'int8'), (2, 'fp32')])
def test_of_equal_files_the_fastest_runs(measured, factor, best):
    measured.ms |= {('int8', i): factor * ms for i, ms in MS.items()}
    runtime = measured.runtime(LOST)
    assert [*runtime.front()][-1] == ('fp32', 1)
    assert runtime.set_budget('20ms') == 2
    assert active(runtime) == (best, 2)
    runtime.hold(fps=1000 / 39)
    assert active(runtime) == (best, 2)


def test_budget_in_flops_times_nothing_and_prefers_fewer_bits(measured, monkeypatch):
    monkeypatch.delattr(StitchRuntime, '_latencies')
    runtime = measured.runtime(LOST)
    assert runtime.set_budget('0.25G') == 2
    assert active(runtime) == ('int8', 2)


@pytest.mark.parametrize(('provider', 'best'), [('cpu', 'fp32'), ('cuda', 'fp16')])
def test_budget_in_flops_prefers_fp16_on_gpus_alone(
    measured, monkeypatch, provider, best
):
    onnxruntime = pytest.importorskip('onnxruntime')
    installed = [PROVIDERS[provider]]
    monkeypatch.setattr(onnxruntime, 'get_available_providers', lambda: installed)
    measured.precisions = 'fp32', 'fp16'
    lost = {('fp16', 2): (0, [-0.1, 0.1])}
    runtime = measured.runtime(lost, providers=provider)
    assert runtime.set_budget('0.25G') == 2
    assert active(runtime) == (best, 2)


def test_stitch_and_precision_are_chosen_at_once(measured):
    """In int8, the stitches with mIoU 40, 42 and 43 lose 0.1, 3 and an unknown."""
    measured.ms |= {('int8', i): ms / 2 for i, ms in MS.items()}
    lost = {('int8', 0): (0.1, None), ('int8', 2): (3, None)}
    runtime = measured.runtime(lost)
    assert active(runtime) == ('fp32', 1)
    for budget, found in {
        '5ms': ('int8', 0), '19ms': ('fp32', 0), '20ms': ('fp32', 2),
    }.items():  # fmt: skip
        runtime.set_budget(budget)
        assert active(runtime) == found
    for precision in ('fp32', 'int8'):
        runtime.set_stitch(0, precision)
        runtime(IMAGE)
        assert measured.ran[-1][0] == (precision, 0)
    quantised = measured.runtime(lost, precision='int8')
    assert quantised.latencies().keys() == {('int8', i) for i in MS}


@pytest.mark.parametrize(('precision', 'counts'), [('fp32', [3]), ('int8', [1] * 3)])
def test_batches_in_int8_run_image_by_image(measured, precision, counts):
    """Their scales are of one image."""
    runtime = measured.runtime(precision=precision)
    assert [mask.shape for mask in runtime.predict_batch([IMAGE] * 3)] == [(8, 8)] * 3
    assert [number for _, number in measured.ran] == counts
    assert runtime.predict_batch([]) == []


def test_latencies_are_cached_by_processor_and_runtime(measured, monkeypatch):
    runtime, path = measured.runtime(), measured.folder / 'latencies.json'
    assert runtime.latencies() == FP32
    assert [*runtime.front().items()] == [*FP32.items()]
    (key,) = json.loads(path.read_text())
    for part in (processor(), f'{usable_cores()} cores', 'onnxruntime'):
        assert part in key
    measured.ms = {key: 2 * ms for key, ms in FP32.items()}
    assert measured.runtime().latencies() == FP32
    monkeypatch.setattr(f'{HOME}.processor', lambda: 'Another CPU')
    assert measured.runtime().latencies() == measured.ms
    assert len(json.loads(path.read_text())) == 2
    path.write_text('damaged')
    assert measured.runtime().latencies() == measured.ms


def test_latencies_are_those_of_a_provider(measured, monkeypatch):
    onnxruntime = pytest.importorskip('onnxruntime')
    assert measured.runtime().latencies() == FP32
    installed = [PROVIDERS['cuda'], PROVIDERS['cpu']]
    monkeypatch.setattr(onnxruntime, 'get_available_providers', lambda: installed)
    measured.ms = {key: ms / 2 for key, ms in FP32.items()}
    runtime = measured.runtime(providers=('cuda', 'cpu'))
    assert (runtime.provider, runtime.latencies()) == ('cuda', measured.ms)
    assert measured.runtime().latencies() == FP32  # of the CPU
    assert pickle.loads(pickle.dumps(runtime)).provider == 'cuda'
    with pytest.raises(ValueError, match='on cuda and .* CPU thread'):
        runtime.set_budget('1ms')


def test_latencies_are_of_all_windows_of_an_image(tmp_path, monkeypatch):
    bundle = Bundle(tmp_path, monkeypatch)
    monkeypatch.setattr(StitchRuntime, '_steady', lambda *_: True)
    bundle.steps.append(dict(step='windows', size=[8, 8], stride=[5, 6]))
    latencies = bundle.runtime(image_size=(10, 15)).latencies()
    assert min(latencies.values()) > 0
    # 2 x 3 windows; an image of the graph's size would have one.
    assert len(bundle.ran) == 6 * (WARM_UP + ROUNDS) * len(MS)
    assert {*bundle.ran[: 6 * len(MS)]} == {*bundle.ran}  # in rounds


@pytest.mark.parametrize(
    ('slow', 'rounds'),
    [
        (lambda key, n: 1, ROUNDS),
        # Other programs run in every third call, or throughout the first rounds.
        (lambda key, n: 1 + (n % 3 == 0), ROUNDS),
        (lambda key, n: 1 + n / 2 * (n < ROUNDS), 2 * ROUNDS),
        # The stitch of most FLOPs is never the slowest, or not in the first rounds.
        (lambda key, n: 1 if key[1] != 1 else 0.1, MAX_ROUNDS),
        (lambda key, n: 0.4 if key[1] == 1 and n < ROUNDS else 1, 2 * ROUNDS),
    ],
)
def test_latencies_are_measured_until_they_are_steady(
    tmp_path, monkeypatch, slow, rounds
):
    bundle, now = Bundle(tmp_path, monkeypatch), [0.0]
    runtime, seen = bundle.runtime(), dict.fromkeys(FP32, -WARM_UP)
    monkeypatch.setattr('time.perf_counter', lambda: now[0])

    def predict(run, images):
        run(np.zeros((1, 3, 8, 8), np.float32))
        key = bundle.ran[-1][0]
        now[0] += FP32[key] / 1000 * slow(key, seen[key])
        seen[key] += 1

    monkeypatch.setattr(runtime._steps, 'predict', predict)
    latencies = runtime.latencies()
    assert abs(seen['fp32', 0] - rounds) <= 2
    if rounds < MAX_ROUNDS:
        assert latencies == pytest.approx(FP32)


def test_latency_budgets_name_threads_and_file(measured, monkeypatch):
    """Threads are those that torch would take, which times the same network."""
    for threads, words in (('3', '3 CPU threads'), ('1', '1 CPU thread ')):
        monkeypatch.setenv('OMP_NUM_THREADS', threads)
        runtime = measured.runtime()
        with pytest.raises(ValueError, match='at least 10ms') as refused:
            runtime.set_budget('9ms')
        path = str(measured.folder / 'latencies.json')
        for part in (words, '8x8 image', path, 'delete latencies.json'):
            assert part in str(refused.value)
        assert any(
            f'threads: {threads},' in key for key in json.loads(Path(path).read_text())
        )
    monkeypatch.delenv('OMP_NUM_THREADS')
    assert measured.runtime().threads == usable_cores()
    assert measured.runtime(threads=5).threads == 5
    with pytest.raises(ValueError, match='in fp32 ') as refused:
        runtime.set_budget('0.001G')
    assert 'latencies.json' not in str(refused.value)


def test_held_rate_counts_the_images_of_a_batch(measured, monkeypatch):
    """Batches of four in 100 ms are of 25 ms each."""
    runtime, clock, times = measured.runtime(), count(step=0.1), []
    runtime.hold(fps=40)
    monkeypatch.setattr(runtime._active, 'update', times.append)
    monkeypatch.setattr('time.perf_counter', lambda: next(clock))
    runtime.predict_batch([IMAGE] * 4)
    assert times == pytest.approx([25])


def test_switching_while_another_thread_predicts(measured):
    runtime, done, faults = measured.runtime(sessions=1), threading.Event(), []

    def switch():
        try:
            while not done.is_set():
                for stitch, fps in {0: 60, 2: 30, 1: None}.items():
                    runtime.set_stitch(stitch)
                    runtime.hold(fps)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=switch) for _ in range(2)]
    for thread in threads:
        thread.start()
    found, end = [], time.monotonic() + 30
    # The other threads may have to wait for a while.
    while len(found) < 300 or (
        found[0] == set.union(*found) and time.monotonic() < end
    ):
        found.append({*runtime(IMAGE).ravel().tolist()})
    done.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert {len(classes) for classes in found} == {1}
    assert len(set.union(*found)) > 1


FLOATS = IMAGE.astype(np.float32)


@pytest.mark.parametrize(
    ('image', 'words'),
    [
        (FLOATS, r'float32.*\(H, W, 3\) of RGB'),
        (np.zeros((8, 8, 3)), r'float64.*\(H, W, 3\)'),
        (np.zeros((0, 8, 3), np.uint8), r'uint8 \(0, 8, 3\).*non-empty'),
    ],
)
def test_images_that_are_not_taken(measured, image, words):
    with pytest.raises(ValueError, match=words):
        measured.runtime()(image)


def test_bundles_with_steps_left_take_only_prepared_images(measured):
    measured.steps.insert(0, dict(step='MyCrop', size=224))
    with pytest.raises(ValueError, match='the runtime run MyCrop of the test pipeline'):
        measured.runtime()
    runtime = measured.runtime(prepared=True)
    for image in (IMAGE, FLOATS):
        assert runtime(image).shape == (8, 8)
    with pytest.raises(ValueError, match=r'\(8, 8\), the size of prepared images'):
        runtime(np.zeros((7, 8, 3), np.uint8))

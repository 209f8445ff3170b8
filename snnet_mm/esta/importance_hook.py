from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mmengine.hooks import Hook
from mmengine.runner import Runner

from snnet_mm.engine.hooks.stitch_report_hook import write_by_group
from snnet_mm.engine.hooks.stitch_sampling_hook import sampling_hook
from snnet_mm.evaluation import as_text, stitch_table
from snnet_mm.models import find_stitched_backbone
from snnet_mm.stitching import StitchResults

from .importance import importance_results
from .importance_sampler import ImportanceSampler
from .saliency import SaliencyScorer

SCORES = 'stitch_scores'
SCORES_FILE = 'stitch_scores.json'


class ImportanceHook(Hook):
    """Scores the stitches of every optimizer step; see :class:`SaliencyScorer`.

    Visualisation backends get the score of each trained stitch as
    ``importance_by_gflops/<mean of the group>``. The message hub keeps the scores as
    ``stitch_scores``. With every checkpoint ``stitch_scores.json`` is written to the
    work directory; see :func:`importance_results`.
    """

    def __init__(self, sampler: ImportanceSampler) -> None:
        self.sampler = sampler

    def before_train(self, runner: Runner) -> None:
        """Go on with the scores of a run that is resumed."""
        self._scorer = SaliencyScorer(runner.model, runner.optim_wrapper, self.sampler)
        state = runner.message_hub.runtime_info.get(SCORES)
        if state is not None:
            self.sampler.load_state_dict(state)

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        """Tell the scorer which stitches the step trains."""
        self._scorer.trained = list(sampling_hook(runner).stitches.values())

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        """Write and keep the scores."""
        for stitch in self._scorer.trained:
            score = self.sampler.scores.get(stitch.id)
            write_by_group(runner, 'importance', stitch.id, score)
        if self.sampler.scores:
            runner.message_hub.update_info(SCORES, self.sampler.state_dict())

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Write the scores of this moment beside the checkpoint."""
        if self.sampler.scores:
            self._results(runner).save(Path(runner.work_dir) / SCORES_FILE)

    def after_train(self, runner: Runner) -> None:
        """Log the most important stitches."""
        self._scorer.remove()
        if self.sampler.scores:  # none if AMP skipped every step
            results = self._results(runner)
            front = set(results.front())
            chosen = [r for r in results.stitches if r.id in front]
            table = as_text(stitch_table(replace(results, stitches=chosen)))
            runner.logger.info(f'The most important stitches, to be deployed:\n{table}')

    def _results(self, runner: Runner) -> StitchResults:
        space = find_stitched_backbone(runner.model).space
        costs, own = sampling_hook(runner).sampler.costs, self.sampler
        groups = own.num_groups, own.cost
        return importance_results(space, costs, own.scores, *groups)

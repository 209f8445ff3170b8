"""Looking at all samples of a split, and what came of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from .samples import DepthSample, Look, MapSample, ObjectsSample, Sample

# Files and details that are kept of every kind of problem.
KEPT = 20
Problem = tuple[str, str, str]  # kind, file, details


@dataclass(frozen=True)
class CheckedSplit:
    """What was found in a split.

    Args:
        name: Of the split.
        num_samples: Images that were looked at.
        counts: By class, or bin of depth: what :attr:`unit` says.
        images: By class, or bin of depth: images with any of it.
        unit: What is counted.
        problems: By kind: how often, and the first files with details.
    """

    name: str
    num_samples: int
    counts: dict[str, int]
    images: dict[str, int]
    unit: str
    problems: dict[str, tuple[int, list[tuple[str, str]]]]

    @property
    def num_problems(self) -> int:
        """How many there are."""
        return sum(number for number, _ in self.problems.values())

    def to_dict(self) -> dict:
        """Plain data, for JSON."""
        return dict(
            split=self.name,
            num_samples=self.num_samples,
            unit=self.unit,
            classes=[
                dict(name=name, count=self.counts[name], images=self.images[name])
                for name in self.counts
            ],
            problems=[
                dict(
                    kind=kind,
                    count=number,
                    first=[dict(file=file, details=why) for file, why in first],
                )
                for kind, (number, first) in self.problems.items()
            ],
        )


def check_split(
    name: str,
    samples: Sequence[Sample],
    classes: Sequence[str],
    problems: Iterable[Problem] = (),
    workers: int = 1,
    track: Callable[[Iterator[Look], int], Iterable[Look]] | None = None,
) -> CheckedSplit:
    """Look at all samples of a split.

    Args:
        name: What to call it.
        samples: Its samples.
        classes: Names of what the samples count.
        problems: What is wrong beyond single samples.
        workers: Number of processes that read files.
        track: Shows progress: gets the looks and how many there will be.
    """
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    numbers: Counter = Counter()
    counts, images = Counter(), Counter()

    def note(kind: str, file: str, details: str) -> None:
        numbers[kind] += 1
        if len(found[kind]) < KEPT:
            found[kind].append((file, details))

    for problem in problems:
        note(*problem)
    looks = _looks(samples, workers)
    looks = looks if track is None else track(looks, len(samples))
    for sample, look in zip(samples, looks, strict=True):
        counts.update(look.counts)
        images.update(look.counts.keys())
        for kind, details in look.problems:
            note(kind, sample.image, details)
    if not isinstance((samples or [None])[0], DepthSample):
        for i, label in enumerate(classes):
            if samples and not counts[i] and 'class without images' not in numbers:
                note('class that never occurs', label, '')
    return CheckedSplit(
        name,
        len(samples),
        {label: counts[i] for i, label in enumerate(classes)},
        {label: images[i] for i, label in enumerate(classes)},
        _unit(samples),
        {kind: (numbers[kind], first) for kind, first in found.items()},
    )


def _looks(samples: Sequence[Sample], workers: int) -> Iterator[Look]:
    if workers <= 1:
        yield from map(_look, samples)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_look, samples, chunksize=16)


def _look(sample: Sample) -> Look:
    return sample.look()


def _unit(samples: Sequence[Sample]) -> str:
    first = samples[0] if samples else None
    if isinstance(first, MapSample | DepthSample):
        return 'pixels'
    return 'objects' if isinstance(first, ObjectsSample) else 'images'

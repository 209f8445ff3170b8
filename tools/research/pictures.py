"""Redraw the diagrams of the pages from results in this repository: ``make pictures``.

Photos and the slider of the README need trained weights and are not redrawn.
"""

from pathlib import Path

from snnet_mm.stitching import StitchResults, TwoWaySpace
from snnet_mm.utils import ToolParser, run_command

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / 'docs' / 'pictures'
RESULTS = {
    'ade20k_published_pareto': 'setr/published/setr-naive_snnetv2-deit3-s-l_ade20k',
    'dinov2_pareto': 'dinov2/results/stitched_1200_seed0',
    'elastic_pareto': 'dinov2/results/elastic_1200_seed0_test',
}


def main() -> None:
    ToolParser(description=__doc__.splitlines()[0]).parse_args()
    from snnet_mm.evaluation import plot_pareto, plot_routes

    plot_routes(TwoWaySpace((6, 12)), PICTURES / 'routes.png')
    for name, results in RESULTS.items():
        found = StitchResults.read(ROOT / 'configs' / f'{results}.json')
        plot_pareto(found, PICTURES / f'{name}.png')
    print(f'Wrote {len(RESULTS) + 1} pictures to {PICTURES}')


if __name__ == '__main__':
    run_command(main)

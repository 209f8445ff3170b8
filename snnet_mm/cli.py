"""The console script ``snnet``, which runs tools by short names."""

import runpy
import sys

from .utils import run_command
from .utils.command_line import TOOLS

COMMANDS = {
    'train': ('train.py', 'train a model'),
    'test': ('test.py', 'test stitches of a model'),
    'elastic': ('make_elastic.py', 'give a trained model smaller budgets'),
    'stitch': ('stitch_models.py', 'stitch two trained models'),
    'export': ('export_stitch.py', 'export stitches of a model'),
    'predict': ('predict.py', 'predict a folder of images'),
    'serve': ('serve.py', 'serve a bundle over HTTP'),
    'bench': ('analysis_tools/stitch_table.py', 'measure costs of all stitches'),
}


def main() -> None:
    """Run the tool named by the first argument with the remaining arguments."""
    command = sys.argv[1] if len(sys.argv) > 1 else '--help'
    if command in ('-h', '--help'):
        print('usage: snnet COMMAND ...\n')
        for name, (tool, words) in COMMANDS.items():
            print(f'  {name:9}{words} (tools/{tool})')
        print('\nsnnet COMMAND --help lists the options of a command.')
        return
    if command not in COMMANDS:
        known = ', '.join(COMMANDS)
        sys.exit(f'Error: command={command!r} is invalid: expected one of {known}')
    sys.argv = [f'snnet {command}', *sys.argv[2:]]
    # Not as '__main__': main() would then see the file name as argv[0].
    run_command(runpy.run_path(str(TOOLS / COMMANDS[command][0]))['main'])

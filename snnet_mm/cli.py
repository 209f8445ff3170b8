"""The console script ``snnet``, which runs tools by short names."""

import runpy
import sys

from .utils import run_command
from .utils.command_line import COMMANDS, TOOLS


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

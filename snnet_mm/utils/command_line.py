"""The command line of all tools: common options and short error messages."""

import argparse
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Collection
from difflib import get_close_matches
from pathlib import Path

from snnet_mm.runtime.checks import check

# Errors that a user can fix, reported without a traceback. All others are bugs.
USERS_ERRORS = ValueError, OSError, ImportError
TRACEBACK, VERBOSE = '--traceback', '--verbose'
TRUST = '--trust-checkpoint'
# Symlinks in a checkout, copies in an installed package.
TOOLS = Path(__file__).parents[1] / '.mim' / 'tools'
LAUNCHERS = 'pytorch', 'slurm', 'mpi'
# Commands of the console script: the tool that each runs, and its help.
COMMANDS = {
    'new': ('new_project.py', 'write a config for a folder of your own images'),
    'train': ('train.py', 'train a model'),
    'test': ('test.py', 'test stitches of a model'),
    'elastic': ('make_elastic.py', 'give a trained model smaller budgets'),
    'stitch': ('stitch_models.py', 'stitch two trained models'),
    'export': ('export_stitch.py', 'export stitches of a model'),
    'predict': ('predict.py', 'predict a folder of images'),
    'serve': ('serve.py', 'serve a bundle over HTTP'),
    'info': ('info.py', 'print versions and devices'),
    'bench': ('analysis_tools/stitch_table.py', 'measure costs of all stitches'),
}
# Missing package -> extra of this package that installs it.
EXTRAS = dict(onnxruntime='onnx', ray='ray', transformers='llama')


class ToolParser(argparse.ArgumentParser):
    """A parser with the options that all tools have; see :func:`run_command`.

    Attributes:
        options: The options of the tool that runs.
    """

    options: Collection[str] = ()

    def __init__(self, description: str = '', **kwargs) -> None:
        # Docstrings of tools end in the command, which the usage already shows.
        super().__init__(description=description.partition(': ``')[0], **kwargs)
        group = self.add_argument_group('output')
        what = "print mmengine's full log (always written to the log file)"
        group.add_argument(VERBOSE, action='store_true', help=what)
        what = 'show the full traceback of an error'
        group.add_argument(TRACEBACK, action='store_true', help=what)

    def parse_known_args(self, *args, **kwargs) -> tuple[argparse.Namespace, list[str]]:
        ToolParser.options = self._option_string_actions.keys()
        return super().parse_known_args(*args, **kwargs)

    def add_cfg_options(self) -> None:
        """Add the option that overrides settings of a config."""
        what = 'override settings of the config, in the form of key=value pairs'
        self.add_argument('--cfg-options', nargs='+', action=_Options, help=what)

    def add_runner_options(self) -> None:
        """Add the options of tools that build a runner, in one process or several."""
        self.add_cfg_options()
        launchers = dict(choices=('none', *LAUNCHERS), default='none')
        self.add_argument('--launcher', **launchers, help='job launcher')
        what = 'run on CPUs even if there are GPUs'
        self.add_argument('--device', choices=['cpu'], action=_Device, help=what)
        what = """unpickle checkpoints without restrictions, which may run code in them;
            by default only weights and plain data are read"""
        self.add_argument(TRUST, action='store_true', help=what)
        # torch.distributed.launch passes the rank here and in the environment.
        self.add_argument('--local_rank', '--local-rank', help=argparse.SUPPRESS)


class _Device(argparse.Action):
    """Hides all GPUs, before torch is imported."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        os.environ.update(CUDA_VISIBLE_DEVICES='')
        setattr(namespace, self.dest, values)


class _Options(argparse.Action):
    """mmengine's ``DictAction``, imported only if the option is given."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        from mmengine.config import DictAction

        action = DictAction(self.option_strings, self.dest, nargs=self.nargs)
        action(parser, namespace, values, option_string)


def run_command(main: Callable[[], None]) -> None:
    """Run a tool; on a user error, print it without a traceback and exit with 1."""
    if VERBOSE not in sys.argv:  # hide warnings that a user cannot act on
        warnings.filterwarnings('ignore', module='mm|timm|torch')
        # Such as that of a driver which is too old, with which torch runs on CPUs.
        warnings.filterwarnings('default', message='.*(CUDA|NVIDIA)')
    try:
        main()
    except Exception as error:
        text = re.sub(r'\(argument: (\w+)\)', _as_option, str(error).strip())
        # Errors of mm about settings and types that do not exist.
        unknown = 'unexpected keyword' in text or 'registry. Please check' in text
        expected = isinstance(error, USERS_ERRORS) or unknown
        if TRACEBACK in sys.argv or not expected:
            raise
        missing = (getattr(error, 'name', None) or '').partition('.')[0]
        if missing in EXTRAS:
            text += f"; pip install 'snnet_mm[{EXTRAS[missing]}]' installs it"
        kind = '' if type(error) is ValueError else f'{type(error).__name__}: '
        print(f'Error: {kind}{text} ({TRACEBACK} shows where)', file=sys.stderr)
        raise SystemExit(1) from None


def _as_option(found: re.Match) -> str:
    """Return the option that sets an argument, if the tool has one."""
    option = f'--{found[1].replace("_", "-")}'
    return f'(option: {option})' if option in ToolParser.options else found[0]


def tool_command(tool: str, *args: object) -> str:
    """Return the shell command that runs a tool from the current folder.

    It is one of ``snnet`` where the user typed such a command.
    """
    words = ['python', os.path.relpath((TOOLS / tool).resolve())]
    if sys.argv[0].startswith('snnet '):  # set by the console script
        names = [name for name, (file, _) in COMMANDS.items() if file == tool]
        words = ['snnet', *names] if names else words
    return shlex.join([*words, *map(str, args)])


def parse_size(text: str, option: str) -> tuple[int, int]:
    """Parse the height and width of an option such as ``168x238``."""
    height, _, width = text.partition('x')
    right = height.isdecimal() and width.isdecimal() and int(height) * int(width)
    expected = 'height and width in pixels, such as 168x238'
    check(right, option, text, expected)
    return int(height), int(width)


def check_file(path: str | os.PathLike | None, key: str) -> None:
    """Raise if a local file does not exist, and suggest the closest name."""
    if path is None or ':' in str(path) or Path(path).expanduser().is_file():
        return
    path = Path(path).expanduser()
    if path.exists():
        raise ValueError(f'{path} is not a file ({key})')
    folder = next(p for p in path.absolute().parents if p.is_dir())
    missing = path.absolute().relative_to(folder).parts[0]
    near = get_close_matches(missing, os.listdir(folder), 1, 0.8)
    hint = f'; did you mean {near[0]!r} in {folder}?' if near else ''
    raise ValueError(f'{path} does not exist{hint} ({key})')

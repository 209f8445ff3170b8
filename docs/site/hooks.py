"""Hooks of mkdocs: the help of tools, written where a page asks for it."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARK = re.compile(r'^<!-- help: (\S+) -->$', re.MULTILINE)


def help_of(mark: re.Match) -> str:
    """Return the ``--help`` of the tool that a mark names, as a code block."""
    command = [sys.executable, ROOT / mark[1], '--help']
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return f'```text\n{done.stdout}```'


def on_page_markdown(markdown: str, **_) -> str:
    """Replace ``<!-- help: tools/NAME.py -->``."""
    return MARK.sub(help_of, markdown)

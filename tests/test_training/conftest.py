from running_here import run_here  # noqa: F401
from toy import task, toy_cfg  # noqa: F401

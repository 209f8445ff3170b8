from running_here import run_here  # noqa: F401

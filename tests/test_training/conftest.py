from toy import task, toy_cfg  # noqa: F401

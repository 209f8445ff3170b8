from toy import SHORT, SIZES, disturb, narrow_toy, smooth_images  # noqa: F401

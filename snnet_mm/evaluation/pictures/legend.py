"""A legend of classes under a picture."""

from collections.abc import Mapping, Sequence

import cv2
import numpy as np

FONT = cv2.FONT_HERSHEY_SIMPLEX


def add_legend(picture: np.ndarray, colors: Mapping[str, Sequence[int]]) -> np.ndarray:
    """Put names of classes, and RGB colours, under a BGR picture ``(H, W, 3)``."""
    width = picture.shape[1]
    scale = max(0.4, width / 1500)
    line, places, x, row = round(40 * scale), [], 0, 0
    for name in colors:
        needed = cv2.getTextSize(name, FONT, scale, 1)[0][0] + 3 * line // 2
        if x and x + needed > width:
            x, row = 0, row + 1
        places.append((x, row * line))
        x += needed
    height = (row + 1) * line if colors else 0
    legend = np.full((height, width, 3), 255, np.uint8)
    for (name, color), (x, y) in zip(colors.items(), places, strict=True):
        corners = (x + line // 6, y + line // 6), (x + line * 5 // 6, y + line * 5 // 6)
        cv2.rectangle(legend, *corners, [int(c) for c in color[::-1]], cv2.FILLED)
        place = x + line, y + line * 5 // 7
        cv2.putText(legend, name, place, FONT, scale, (0, 0, 0), 1, cv2.LINE_AA)
    return np.concatenate([picture, legend])

"""Properties computed from pixels alone: brightness, main colour, and whether it is blank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Enough pixels to estimate shares of colours, at negligible cost beside the network.
_SAMPLE_SIDE = 64

# The colour is taken from the middle of the picture, this share of each side: people hold up what
# they ask about, and the wall's colour does not matter.
_MIDDLE = 0.6

# Rec. 601 luma of gamma-coded RGB, which is perceived brightness.
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)

_DARK_BELOW = 0.2
_BRIGHT_ABOVE = 0.65
# Standard deviation of luma below which a picture is blank: a covered lens, a plain wall.
_BLANK_BELOW = 0.02

# Hue ranges in degrees, upper bounds; red wraps around.
_HUES = (
    (15.0, "red"),
    (42.0, "orange"),
    (68.0, "yellow"),
    (165.0, "green"),
    (195.0, "turquoise"),
    (255.0, "blue"),
    (290.0, "purple"),
    (335.0, "pink"),
    (360.0, "red"),
)
_BLACK_BELOW = 0.2  # value
_GREY_BELOW = 0.15  # saturation
_WHITE_ABOVE = 0.8  # value of an unsaturated pixel
_BROWN_BELOW = 0.7  # value of an orange or red-orange pixel
_BROWN_FROM = 10.0  # degrees
_PALE_BELOW = 0.45  # saturation: a pale, light red is pink
# Minimum share of a chromatic colour to be named before black, white or grey.
_COLOUR_SHARE = 0.25

_PLAIN = ("black", "grey", "white")
COLOURS = ("red", "orange", "yellow", "green", "turquoise", "blue", "purple", "pink", "brown")
BRIGHTNESS = ("dark", "well lit", "bright")

Rgb = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class PixelProperties:
    """`luma`: mean in 0..1; `brightness`: a word for it; `colour`: the main colour's name."""

    luma: float
    brightness: str
    colour: str
    is_blank: bool


def describe(rgb: Rgb) -> PixelProperties:
    """Properties of `rgb`, uint8 [H, W, 3]: brightness of the whole, colour of its middle."""
    lumas = _sample(rgb, 1.0) @ _LUMA
    luma = float(lumas.mean())
    colour = _main_colour(_sample(rgb, _MIDDLE))
    return PixelProperties(luma, _brightness(luma), colour, float(lumas.std()) < _BLANK_BELOW)


def _sample(rgb: Rgb, share: float) -> npt.NDArray[np.float32]:
    """Pixels [n, 3] in 0..1, evenly spaced in the middle `share` of each side of `rgb`."""
    rows, columns = (_positions(length, share) for length in rgb.shape[:2])
    return rgb[np.ix_(rows, columns)].reshape(-1, 3).astype(np.float32) / np.float32(255.0)


def _positions(length: int, share: float) -> npt.NDArray[np.intp]:
    first = round((length - 1) * (1.0 - share) / 2.0)
    last = length - 1 - first
    count = min(last - first + 1, _SAMPLE_SIDE)
    return np.linspace(first, last, count).round().astype(np.intp)


def _brightness(luma: float) -> str:
    dark, well_lit, bright = BRIGHTNESS
    if luma < _DARK_BELOW:
        return dark
    return bright if luma > _BRIGHT_ABOVE else well_lit


def _main_colour(pixels: npt.NDArray[np.float32]) -> str:
    """The most frequent name of pixels [n, 3]; chromatic colours take precedence over grey."""
    names = _name_pixels(pixels)
    share = {name: float((names == name).mean()) for name in (*COLOURS, *_PLAIN)}
    colour = max(COLOURS, key=share.__getitem__)
    if share[colour] >= _COLOUR_SHARE:
        return colour
    return max(share, key=share.__getitem__)


def _name_pixels(pixels: npt.NDArray[np.float32]) -> npt.NDArray[np.str_]:
    """A colour name for each of `pixels` [n, 3] in 0..1: [n]."""
    value = pixels.max(axis=1)
    spread = value - pixels.min(axis=1)
    saturation = np.divide(spread, value, out=np.zeros_like(value), where=value > 0)
    hue = _hue_degrees(pixels, value, spread)
    bounds = np.array([bound for bound, _ in _HUES])
    words = np.array([word for _, word in _HUES])
    names = words[np.searchsorted(bounds, hue, side="right").clip(max=len(_HUES) - 1)]
    reddish = (names == "orange") | ((names == "red") & (hue >= _BROWN_FROM) & (hue < 180.0))
    names = np.where(reddish & (value < _BROWN_BELOW), "brown", names)
    names = np.where((names == "red") & (saturation < _PALE_BELOW), "pink", names)
    grey = np.where(value > _WHITE_ABOVE, "white", "grey")
    names = np.where(saturation < _GREY_BELOW, grey, names)
    return np.where(value < _BLACK_BELOW, "black", names)


def _hue_degrees(
    pixels: npt.NDArray[np.float32],
    value: npt.NDArray[np.float32],
    spread: npt.NDArray[np.float32],
) -> npt.NDArray[np.float32]:
    """Hue in 0..360 of `pixels` [n, 3]; 0 for grey ones."""
    red, green, blue = pixels.T
    safe = np.where(spread > 0, spread, 1.0)
    sixth = np.where(
        value == red,
        ((green - blue) / safe) % 6.0,
        np.where(value == green, (blue - red) / safe + 2.0, (red - green) / safe + 4.0),
    )
    return np.where(spread > 0, sixth * 60.0, 0.0).astype(np.float32)

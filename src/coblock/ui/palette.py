"""Define the colours of the report, the plots, the notebook view and the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

Colour = tuple[int, int, int]

# From no links to all links, on a light and on a dark background. One hue with steadily changing
# lightness is readable with every kind of colour blindness and in greyscale.
LIGHT_SCALE = ((243, 247, 251), (189, 213, 234), (107, 166, 209), (40, 106, 167), (10, 48, 98))
DARK_SCALE = ((29, 37, 48), (32, 62, 96), (47, 105, 160), (112, 171, 219), (222, 238, 251))
UNSEEN = (205, 182, 140)
SERIES = (LIGHT_SCALE[3], (127, 168, 201))  # bars of rows and of columns in a plot
SECONDARY = "0.45"  # matplotlib's grey for a line on a second axis
STEPS = 21  # shades of the block map on the page
DARK_INK, PALE_INK = "#020406", "#ffffff"
EQUAL_CONTRAST = 0.18  # background luminance at which both inks have the same contrast
THEME = {  # variables of the page's style sheet, on a light and on a dark screen
    "paper": ("#fcfcfa", "#12171d"),
    "panel": ("#ffffff", "#181f27"),
    "ink": ("#1b2430", "#e4e9ef"),
    "soft": ("#5a6675", "#9aa7b5"),
    "rule": ("#e1e4e6", "#2b3541"),
    "accent": ("#1f5f9e", "#86bdf0"),
    "glow": ("#dcebf8", "#1f3550"),
    "border": ("#b3470c", "#ff9d5c"),
    "shadow": ("#0a14232e", "#0a14232e"),
    "warn-ink": ("#7a4a00", "#ffd591"),
    "warn": ("#fff3dc", "#3a2c10"),
    "good-ink": ("#1d5c3a", "#9fdcb8"),
    "good": ("#e6f3ea", "#16301f"),
}


def blend(scale: Sequence[Colour], share: float) -> Colour:
    """Return the colour at ``share``, from 0 to 1, of the way along a scale."""
    at = min(max(share, 0.0), 1.0) * (len(scale) - 1)
    left = min(int(at), len(scale) - 2)
    pair = zip(scale[left], scale[left + 1], strict=True)
    red, green, blue = (round(low + (high - low) * (at - left)) for low, high in pair)
    return red, green, blue


def to_hex(colour: Colour) -> str:
    """Return a colour in the notation of CSS, rich and matplotlib: ``#rrggbb``."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def ink_on(background: Colour) -> str:
    """Return the colour of text that is easier to read on a background: nearly black, or white."""
    red, green, blue = (  # the W3C's relative luminance
        part / 3294.6 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4
        for part in background
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return PALE_INK if luminance < EQUAL_CONTRAST else DARK_INK


def colour_map() -> "Colormap":
    """Return the light scale as a colour map of matplotlib."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("coblock", [to_hex(stop) for stop in LIGHT_SCALE])


def css_colours() -> str:
    """Return the CSS variables and the shade classes of the page, for light and dark screens."""
    roots = []
    for which, scale in enumerate((LIGHT_SCALE, DARK_SCALE)):
        variables = {name: colours[which] for name, colours in THEME.items()}
        for step in range(STEPS):
            colour = blend(scale, step / (STEPS - 1))
            variables |= {f"s{step}": to_hex(colour), f"t{step}": ink_on(colour)}
        roots.append(":root{" + "".join(f"--{k}:{v};" for k, v in variables.items()) + "}")
    shades = [f".s{s}{{fill:var(--s{s})}}.t{s}{{fill:var(--t{s})}}" for s in range(STEPS)]
    dark = f"@media screen and (prefers-color-scheme:dark){{{roots[1]}}}"
    return "\n".join([roots[0], dark, *shades])

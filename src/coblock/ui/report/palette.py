"""Colours from no links to all links: one hue, ever darker, told apart by every kind of eye."""

from collections.abc import Sequence

Colour = tuple[int, int, int]

LIGHT: tuple[Colour, ...] = (  # on paper: from pale to dark
    (243, 247, 251),
    (189, 213, 234),
    (107, 166, 209),
    (40, 106, 167),
    (10, 48, 98),
)
DARK: tuple[Colour, ...] = (  # on a dark screen: from dark to pale
    (29, 37, 48),
    (32, 62, 96),
    (47, 105, 160),
    (112, 171, 219),
    (222, 238, 251),
)
UNSEEN: Colour = (205, 182, 140)
STEPS = 21  # shades of the block map
DARK_INK, PALE_INK = "#020406", "#ffffff"
SWITCH = 0.18  # luminance at which both inks can be read equally well


def blend(stops: Sequence[Colour], share: float) -> Colour:
    """Return the colour at a share, from 0 to 1, of the way along the stops."""
    at = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    left = min(int(at), len(stops) - 2)
    pair = zip(stops[left], stops[left + 1], strict=True)
    red, green, blue = (round(low + (high - low) * (at - left)) for low, high in pair)
    return red, green, blue


def css_colour(colour: Colour) -> str:
    """Return the colour as CSS writes it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def ink_on(colour: Colour) -> str:
    """Return the colour of the letters that are easier to read on this one."""
    return PALE_INK if luminance(colour) < SWITCH else DARK_INK


def luminance(colour: Colour) -> float:
    """Return the relative luminance, from 0 to 1, as the W3C defines it for contrast."""
    red, green, blue = (
        part / 3294.6 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def shade_css() -> str:
    """Return the style of the block map's shades, for paper and for dark screens."""
    rules = [
        f".s{step}{{fill:var(--s{step})}}.t{step}{{fill:var(--t{step})}}" for step in range(STEPS)
    ]
    return "\n".join(
        [
            f":root{{{_variables(LIGHT)}}}",
            f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}",
            *rules,
        ]
    )


def _variables(stops: Sequence[Colour]) -> str:
    """Return the shades and the inks on them as variables of the style sheet."""
    colours = [blend(stops, step / (STEPS - 1)) for step in range(STEPS)]
    return "".join(
        f"--s{step}:{css_colour(colour)};--t{step}:{ink_on(colour)};"
        for step, colour in enumerate(colours)
    )

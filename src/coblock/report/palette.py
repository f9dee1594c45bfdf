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
UNSEEN: Colour = (224, 214, 196)
STEPS = 21  # shades of the block map
DARK_INK, PALE_INK = "#16202c", "#ffffff"
SWITCH = 0.52  # shade from which the other ink is easier to read


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


def ink_on(share: float) -> str:
    """Return the colour of letters that can be read on this shade of paper."""
    return PALE_INK if share > SWITCH else DARK_INK


def shade_css() -> str:
    """Return the style of the block map's shades, for paper and for dark screens."""
    shares = [step / (STEPS - 1) for step in range(STEPS)]
    rules = [
        f".s{step}{{fill:var(--s{step})}}.t{step}{{fill:var(--t{step})}}" for step in range(STEPS)
    ]
    light = _variables(LIGHT, [ink_on(share) for share in shares])
    dark = _variables(DARK, [ink_on(1.0 - share) for share in shares])
    return "\n".join(
        [
            f":root{{{light}}}",
            f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}",
            *rules,
        ]
    )


def _variables(stops: Sequence[Colour], inks: Sequence[str]) -> str:
    return "".join(
        f"--s{step}:{css_colour(blend(stops, step / (STEPS - 1)))};--t{step}:{ink};"
        for step, ink in enumerate(inks)
    )

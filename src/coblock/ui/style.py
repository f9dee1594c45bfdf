"""Define the colours, and the format of names and numbers, of all output."""

from collections.abc import Sequence

Colour = tuple[int, int, int]

# From no links to all links, on a light and on a dark background. One hue with steadily changing
# lightness is readable with every kind of colour blindness and in greyscale.
LIGHT_SCALE = ((243, 247, 251), (189, 213, 234), (107, 166, 209), (40, 106, 167), (10, 48, 98))
DARK_SCALE = ((29, 37, 48), (32, 62, 96), (47, 105, 160), (112, 171, 219), (222, 238, 251))
UNSEEN = (205, 182, 140)
STEPS = 21  # shades of the block map on the page
DARK_INK, PALE_INK = "#020406", "#ffffff"
EQUAL_CONTRAST = 0.18  # background luminance at which both inks have the same contrast
MAX_NAME, MAX_SETTING = 100, 160  # characters of a name and of a setting on the page


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
    linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in background]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # as W3C defines it
    return PALE_INK if luminance < EQUAL_CONTRAST else DARK_INK


def css_colours() -> str:
    """Return the shades of the block map and of text on them, for light and dark screens."""
    roots = []
    for scale in (LIGHT_SCALE, DARK_SCALE):
        colours = [blend(scale, step / (STEPS - 1)) for step in range(STEPS)]
        shades = [f"--s{s}:{to_hex(c)};--t{s}:{ink_on(c)};" for s, c in enumerate(colours)]
        roots.append(f":root{{{''.join(shades)}}}")
    dark = f"@media screen and (prefers-color-scheme:dark){{{roots[1]}}}"
    classes = [f".s{s}{{fill:var(--s{s})}}.t{s}{{fill:var(--t{s})}}" for s in range(STEPS)]
    return "\n".join([roots[0], dark, *classes])


def percent(share: float) -> str:
    """Return a share as a percentage with its significant digits.

    Examples
    --------
    >>> [percent(p) for p in (0.0, 0.00042, 0.034, 0.5, 0.9971, 1.0)]
    ['0%', '0.042%', '3.4%', '50%', '99.7%', '100%']
    """
    value = 100.0 * share
    if value == 0.0:
        return "0%"
    if value < 9.95:
        return f"{value:.2g}%" if value >= 1e-4 else f"{value:.0e}%"
    return f"{value:.1f}%" if 99.5 <= value < 99.95 else f"{value:.0f}%"


def truncate(text: str, length: int = MAX_NAME, ellipsis: str = "…") -> str:
    """Return a text of at most ``length`` characters; an ellipsis replaces the rest."""
    return text if len(text) <= length else f"{text[: length - len(ellipsis)]}{ellipsis}"


def display_name(names: Sequence[str] | None, i: int) -> str:
    """Return the name of object ``i``, or its number if objects have no names or it is blank."""
    if names is None:
        return str(i)
    return truncate(names[i]) if names[i].strip() else f"(blank, number {i})"


def display_setting(value: object) -> str:
    """Return the value of a setting as text; of an array only the shape is shown."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    shape = getattr(value, "shape", None)
    if shape:
        return f"array of shape {' × '.join(f'{size:,}' for size in shape)}"
    return truncate(str(value), MAX_SETTING)

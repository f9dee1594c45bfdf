"""Formulas as MathML, which browsers display without a script and without a network."""

from xml.etree import ElementTree

from docutils.utils.math.latex2mathml import tex2mathml

APPLY = "\N{FUNCTION APPLICATION}"
FUNCTIONS = {"ln", "log"}
THIN_SPACE = "0.17em"  # around the name of a function, as in LaTeX


def to_mathml(formula: str, *, block: bool) -> str:
    """Return MathML for a LaTeX formula; raise docutils' MathError if it cannot be converted."""
    text = tex2mathml(formula, as_block=block).replace("&ApplyFunction;", APPLY)
    tree = ElementTree.fromstring(text.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', ""))
    for node in list(tree.iter()):
        if node.tag == "munderover" and node[2].tag == "mo":
            _attach_index(node)
        elif node.tag == "mo" and node.text in {"{", "}"}:
            node.set("stretchy", "false")
        _space_functions(node)
    return ElementTree.tostring(tree, encoding="unicode")


def _attach_index(node: ElementTree.Element) -> None:
    """Place the index of an accented letter beside it; docutils places it below."""
    base, index, accent = node
    accented = ElementTree.Element("mover")
    accented.extend((base, accent))
    node.tag = "msub"
    node[:] = (accented, index)


def _space_functions(node: ElementTree.Element) -> None:
    """Put thin spaces around names of functions, but none before a parenthesis."""
    children = list(node)
    for name, apply, argument in zip(children, children[1:], children[2:], strict=False):
        if name.tag == "mi" and name.text in FUNCTIONS and apply.text == APPLY:
            name.tag = "mo"
            name.attrib = {"form": "prefix", "lspace": THIN_SPACE, "rspace": "0"}
            if argument.tag != "mo":
                name.set("rspace", THIN_SPACE)

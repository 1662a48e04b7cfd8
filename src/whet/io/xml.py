"""XML from strangers, and exact decimals."""

from __future__ import annotations

import re
from decimal import Decimal
from math import isfinite
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, TreeBuilder
from xml.parsers.expat import errors as expat

from whet.errors import CascadeFileError, WhetError

# The largest cascade known, OpenCV's alt_tree, has 2.6 MB, 69,000 elements and 6 levels.
MOST_BYTES = 16_000_000
MOST_ELEMENTS = 500_000
MOST_DEPTH = 32
# Longer than any number in full precision.
LONGEST_NUMBER = 64
WHOLE = re.compile(r"[+-]?[0-9]{1,10}\Z", re.ASCII)
# What a parser says of a document that ends too early.
ENDS_EARLY = {expat.codes[text] for text in (expat.XML_ERROR_NO_ELEMENTS, expat.XML_ERROR_UNCLOSED_TOKEN)}
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\Z", re.ASCII)


class _BoundedBuilder(TreeBuilder):
    """Builds elements until there are too many of them, or too many within each other."""

    def __init__(self, source: str, error: type[WhetError]) -> None:
        super().__init__()
        self.source, self.error, self.elements, self.depth = source, error, 0, 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self.elements, self.depth = self.elements + 1, self.depth + 1
        if self.elements > MOST_ELEMENTS or self.depth > MOST_DEPTH:
            raise self.error(
                f"{self.source} has over {MOST_ELEMENTS:,} elements or over {MOST_DEPTH} levels: more than whet reads"
            )
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self.depth -= 1
        return super().end(tag)


def read_bounded(path: Path, error: type[WhetError] = CascadeFileError) -> bytes:
    """The bytes of a file of at most 16 MB."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise error(f"{path} has over {MOST_BYTES:,} bytes: more than whet reads")
    return data


def parse_bounded(data: bytes, source: str, error: type[WhetError] = CascadeFileError) -> Element:
    """The root of an XML document; the `error` for what is none, or declares entities, or is too much."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import DefusedXMLParser

    parser = DefusedXMLParser(target=_BoundedBuilder(source, error), forbid_dtd=True)
    try:
        parser.feed(data)
        root: Element = parser.close()
    except (ParseError, DefusedXmlException, ValueError, LookupError) as fault:
        if isinstance(fault, error):
            raise
        if isinstance(fault, ParseError) and fault.code in ENDS_EARLY:
            raise error(f"{source} {_cut(data, fault)}; copy or download it again") from fault
        raise error(f"{source} is not XML that whet reads: {fault or type(fault).__name__}") from fault
    return root


def _cut(data: bytes, fault: ParseError) -> str:
    if not data.strip():
        return "is empty; expected XML"
    line, _ = fault.position
    return f"is XML that was cut short: it ends in its line {line:,}, before the outermost element is closed"


def child_of(element: Element, name: str, where: str) -> Element:
    """The one child of this name."""
    found = element.find(name)
    if found is None:
        raise CascadeFileError(f"{where} has no <{name}>")
    return found


def whole_number(text: str, where: str) -> int:
    """A whole number of up to ten digits."""
    if not WHOLE.match(text):
        raise CascadeFileError(f"{where}: expected a whole number, got {text[:LONGEST_NUMBER]!r}")
    return int(text)


def real_number(text: str, where: str) -> float:
    """A finite number in decimal digits."""
    if len(text) > LONGEST_NUMBER or not NUMBER.match(text):
        raise CascadeFileError(f"{where}: expected a number, got {text[:LONGEST_NUMBER]!r}")
    return float(text)


def words_of(element: Element) -> list[str]:
    """The words of an element's own text."""
    return (element.text or "").split()


def only_word(element: Element, name: str, where: str) -> str:
    """The one word in the child of this name."""
    words = words_of(child_of(element, name, where))
    if len(words) != 1:
        raise CascadeFileError(f"{where}: <{name}> holds {len(words)} values; expected one")
    return words[0]


# Beyond any image; products of such numbers are still far from the largest float.
FARTHEST = 1e9


def added(a: float, b: float) -> float:
    """The sum of two numbers as they are written.

    >>> 0.1 + 0.2, added(0.1, 0.2), added(0.3, -0.1)
    (0.30000000000000004, 0.3, 0.2)
    """
    if a == int(a) and b == int(b):
        return a + b
    return float(Decimal(repr(float(a))) + Decimal(repr(float(b))))


def text_of(value: float) -> str:
    """The shortest text that is read as the same number; whole numbers without a point.

    >>> text_of(12.0), text_of(0.1)
    ('12', '0.1')
    """
    return str(int(value)) if value == int(value) else repr(float(value))


def number_in(text: str) -> float | None:
    """A number from its text; None for what is none, is not finite or lies beyond any image.

    >>> number_in(" 1.5 "), number_in("nan"), number_in("1_0"), number_in("1e99")
    (1.5, None, None, None)
    """
    text = text.strip()
    if len(text) > LONGEST_NUMBER or not NUMBER.match(text):
        return None
    value = float(text)
    return value if isfinite(value) and abs(value) <= FARTHEST else None

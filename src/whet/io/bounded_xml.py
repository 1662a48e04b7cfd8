"""Bounded XML parsing: untrusted files cannot exhaust memory or expand entities."""

from __future__ import annotations

from xml.etree.ElementTree import Element, ParseError, TreeBuilder
from xml.parsers.expat import errors as expat

from whet.errors import CascadeFileError, WhetError

# The largest known cascade, OpenCV's alt_tree, has 2.6 MB, 69,000 elements and 6 levels.
MAX_BYTES = 16_000_000
MAX_ELEMENTS = 500_000
MAX_DEPTH = 32


class _BoundedBuilder(TreeBuilder):
    """A tree builder that raises `error` for too many elements, or for too many nested elements."""

    def __init__(self, source: str, error: type[WhetError]) -> None:
        super().__init__()
        self.source, self.error, self.elements, self.depth = source, error, 0, 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self.elements, self.depth = self.elements + 1, self.depth + 1
        if self.elements > MAX_ELEMENTS or self.depth > MAX_DEPTH:
            raise self.error(
                f"{self.source} has more than {MAX_ELEMENTS:,} elements or {MAX_DEPTH} levels; expected a smaller file"
            )
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self.depth -= 1
        return super().end(tag)


def parse_bounded(data: bytes, source: str, error: type[WhetError] = CascadeFileError) -> Element:
    """Parse an XML document and return its root; raises `error` if it is invalid, declares a DTD, or is too large."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import DefusedXMLParser

    parser = DefusedXMLParser(target=_BoundedBuilder(source, error), forbid_dtd=True)
    try:
        parser.feed(data)
        root: Element = parser.close()
    except (ParseError, DefusedXmlException, ValueError, LookupError) as fault:
        if isinstance(fault, error):
            raise
        truncated = [expat.codes[text] for text in (expat.XML_ERROR_NO_ELEMENTS, expat.XML_ERROR_UNCLOSED_TOKEN)]
        if isinstance(fault, ParseError) and fault.code in truncated:
            line, what = fault.position[0], "is empty; expected XML"
            if data.strip():
                what = f"is truncated XML: it ends in line {line:,}, before the root element is closed"
            raise error(f"{source} {what}; copy or download it again") from fault
        if isinstance(fault, DefusedXmlException):
            kind = type(fault).__name__
            raise error(f"{source} declares a DTD or an entity ({kind}); expected XML without: remove it") from fault
        raise error(f"{source} is not valid XML: {fault or type(fault).__name__}") from fault
    return root

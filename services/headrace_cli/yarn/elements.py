"""Parse XML into elements that know their lines. A document type, entities and external references are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, Locator

from headrace.installation.extras import require
from headrace.tree_file.problems import FileProblem, Problems, shown

#: Largest depth to which elements may be nested.
MOST_NESTED: Final = 100
#: Largest number of elements in one file.
MOST_ELEMENTS: Final = 200_000


@dataclass
class Element:
    """An element with its attributes, text and children."""

    name: str
    line: int
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self) -> Iterator[Element]:
        """Yield the element and all elements inside it."""
        yield self
        for child in self.children:
            yield from child.all()


def read_elements(data: bytes, problems: Problems, top: str) -> Element:
    """Parse a document whose top element is `top`. Raises `UnusableFile`, `MissingExtra`."""
    require("import", f"the XML file {problems.file}")
    import defusedxml.sax
    from defusedxml import DefusedXmlException

    handler = _Handler(problems)
    try:
        defusedxml.sax.parseString(data, handler, forbid_dtd=True, forbid_entities=True, forbid_external=True)
    except SAXParseException as error:
        wrong = f"cannot be read as XML ({error.getMessage()})"
        raise problems.unusable(FileProblem(error.getLineNumber() or 0, "", "", wrong, f"<{top}>")) from None
    except DefusedXmlException as error:
        wrong = f"a document type or entity is not accepted ({type(error).__name__})"
        raise problems.unusable(FileProblem(handler.line, "", "", wrong, "elements, attributes and text")) from None
    except (ValueError, LookupError) as error:  # unknown encoding
        raise problems.unusable(FileProblem(1, "", "", f"cannot be read as XML ({error})", f"<{top}>")) from None
    assert handler.root is not None, "XML without an element does not parse"
    if handler.root.name != top:
        found = f"<{shown(handler.root.name)}>"
        raise problems.unusable(FileProblem(handler.root.line, "", found, f"the top element is {found}", f"<{top}>"))
    return handler.root


class _Handler(ContentHandler):
    """Builds elements from the events of the parser."""

    #: Position of the parser in the document; set by the parser.
    _locator: Locator | None

    def __init__(self, problems: Problems) -> None:
        super().__init__()
        self.root: Element | None = None
        self._open: list[Element] = []
        self._texts: list[list[str]] = []
        self._count = 0
        self._problems = problems

    @property
    def line(self) -> int:
        return (self._locator.getLineNumber() if self._locator is not None else None) or 0

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        if len(self._open) == MOST_NESTED:
            expected = f"at most {MOST_NESTED} levels of nested elements"
            raise self._problems.unusable(FileProblem(self.line, "", "", "nested too deep", expected))
        self._count += 1
        if self._count > MOST_ELEMENTS:
            expected = f"at most {MOST_ELEMENTS} in one file"
            raise self._problems.unusable(FileProblem(self.line, "", "", "too many elements", expected))
        element = Element(name, self.line, dict(attrs.items()))
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)
        self._texts.append([])

    def endElement(self, name: str) -> None:
        self._open.pop().text = "".join(self._texts.pop())

    def characters(self, content: str) -> None:
        self._texts[-1].append(content)

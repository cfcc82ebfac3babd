"""A page of HTML in one file, for a browser without a network: its style, its frame and its tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#59636e;--line:#d1d9e0;--page:#fff;--bar:#0969da;--lost:#bc4c00;--fair:#1a7f37}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9198a1;--line:#3d444d;--page:#0d1117}
:root{--bar:#4493f8;--lost:#f0883e;--fair:#3fb950}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.5rem}p,caption{color:var(--dim)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right}
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere}tfoot td{font-weight:600}
svg{width:100%;height:auto}svg text{fill:var(--dim);font-size:11px}.bar{fill:var(--bar)}.lost{fill:var(--lost)}
.axis{stroke:var(--line)}
"""
_HEAD: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
)


def html_page(title: str, parts: Iterable[str], style: str = "") -> str:
    """Return a page with a title, which is escaped, and parts, which are HTML. `style` is added to the style of all pages."""
    heads = (_HEAD, f"<title>{escape(title)}</title>", f"<style>{_STYLE}{style}</style>", f"<h1>{escape(title)}</h1>")
    return "\n".join([*heads, *filter(None, parts), "</html>", ""])


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], total: Sequence[str] | None = None) -> str:
    """Return a table, perhaps with a last row of totals. All cells are escaped. The first column is text, all others are figures."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    foot = f"<tfoot>{_row(total)}</tfoot>" if total is not None else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(_row, rows))}</tbody>{foot}</table>"


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"

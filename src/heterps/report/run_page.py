"""Reports of runs as an HTML page that needs no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from heterps.report.pages import STYLE


def page(title: str, sections: Sequence[str]) -> str:
    body = "\n".join(sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
{body}
</body>
</html>
"""


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str]) -> str:
    """``left`` names the columns that are aligned to the left."""
    names = [title in left for title in titles]
    lines = [_row("th", titles, names), *(_row("td", row, names) for row in rows)]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def lines(pairs: Sequence[tuple[str, str]]) -> str:
    rows = "\n".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in pairs)
    return f'<table class="lines">\n{rows}\n</table>'


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def _row(tag: str, cells: Sequence[str], names: Sequence[bool]) -> str:
    marked = (
        f'<{tag} class="name">{escape(cell)}</{tag}>' if name else f"<{tag}>{escape(cell)}</{tag}>"
        for cell, name in zip(cells, names, strict=True)
    )
    return f"<tr>{''.join(marked)}</tr>"

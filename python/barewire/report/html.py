# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Pages: self-contained HTML files, which need no network and no other file."""

import base64
import itertools
import json
import zlib
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from barewire.report import words
from barewire.report.answer import Answer
from barewire.report.figure_data import figure_data
from barewire.report.figures import DARK, Figure, chosen
from barewire.report.svg import svg
from barewire.report.versus import flatten
from barewire.stats.confidence import CONFIDENCE

_ASSETS = Path(__file__).parent / "assets"
# Widths in px at which figures are drawn: in two columns, across the page, on the first screen, in a gallery of three
# columns, and on a phone.
_WIDTHS = {"WIDE": 560, "FULL": 1000, "ANSWER": 680, "GALLERY": 400}
_NARROW = 340
# Of a table's rows only so many are in the page as they are, about 500 bytes each; the others are packed.
_ROWS_SHOWN = 60


def page(template: str, *, answer: Answer, **content: Any) -> str:
    """Fill a template in `assets` that extends page.html.j2; `answer` is its first screen."""
    return fill(template, answer=answer, **content)


def fill(template: str, **content: Any) -> str:
    """Fill a template in `assets`, with the style and functions common to all pages."""
    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbers = itertools.count()

    def drawings(figure: Figure, label: str, width: int) -> dict[str, Markup]:
        """The choice that is shown first, for wide and for narrow pages; and the others by number, packed."""

        def drawn(number: int | None) -> str:
            choice = chosen(figure, number)
            return "".join(
                svg(choice, label, width=px, ids=f"g{next(numbers)}-", css_class=kind)
                for kind, px in (("wide", width), ("narrow", _NARROW))
            )

        first = figure.get("chosen", 0)
        others = [number for number in range(len(figure.get("choices", ()))) if number != first]
        return {"first": Markup(drawn(None)), "others": _packed({number: drawn(number) for number in others})}

    # The confidence of the page's intervals; a page without any needs none.
    of_page = partial(figure_data, confidence=content.get("figures_confidence", CONFIDENCE))
    environment.filters |= {"inline_json": _inline_json, "figure_data": of_page, "drawings": drawings}
    environment.filters["packed"] = lambda markup: _packed(str(markup))
    environment.globals |= {"asset": _asset, **_WIDTHS, "words": words, "ROWS_SHOWN": _ROWS_SHOWN}
    text = environment.get_template(template).render(**content, style=_asset("report.css") + _dark_colours())
    # A name that is no text, such as a file's in another encoding, has escapes.
    return text.encode(errors="backslashreplace").decode()


def rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Nested values as rows of a table, with dotted keys."""
    flat = {key: "–" if value is None else value for key, value in flatten(data).items()}
    return [
        (key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for key, value in flat.items()
    ]


def _asset(name: str) -> Markup:
    return Markup((_ASSETS / name).read_text(encoding="utf-8"))


def _dark_colours() -> Markup:
    """Rules that replace the colours of figures in the dark theme; on paper it is never dark."""
    rules = "".join(
        f'.plot [{name}="{light}"]{{{name}:{dark}}}\n' for light, dark in DARK.items() for name in ("fill", "stroke")
    )
    return Markup(f"@media screen and (prefers-color-scheme: dark) {{\n{rules}}}\n")


def _packed(data: object) -> Markup:
    """JSON, compressed, as text for the page's script."""
    return Markup(base64.b64encode(zlib.compress(json.dumps(data).encode(), 9)).decode())


def _inline_json(data: object) -> Markup:
    """JSON for a script element, escaped so that it cannot end the element."""
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))

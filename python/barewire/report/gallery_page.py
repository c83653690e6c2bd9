# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A gallery: one page with the first screen of each of many runs, and links to their reports."""

from collections.abc import Sequence
from dataclasses import dataclass

from barewire.report.answer import Answer
from barewire.report.html import fill


@dataclass(frozen=True)
class Entry:
    """A run in the gallery; `link` is the URL of its report, relative to the page."""

    id: str
    created: str
    launches: int
    complete: bool
    link: str
    answer: Answer


def render_gallery(entries: Sequence[Entry], unread: Sequence[str]) -> str:
    """The page; `unread` are sentences about runs that cannot be read."""
    return fill("gallery.html.j2", entries=entries, unread=unread)

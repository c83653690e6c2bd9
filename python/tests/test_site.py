# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The site without its generator: every page of docs/ is in the navigation, every link leads somewhere."""

import re
from pathlib import Path

import pytest
import yaml

import barewire
from barewire.cli.manual import commands, reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Made by the build, or listed by its hook.
MADE = {"index.md", "commands.md", "api.md"}
LISTED = ("decisions/", "notebook/")


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def in_navigation(part: object) -> set[str]:
    if isinstance(part, str):
        return {part}
    values = part if isinstance(part, list) else list(part.values()) if isinstance(part, dict) else []
    return set().union(*(in_navigation(value) for value in values))


def test_every_page_is_in_the_navigation() -> None:
    found = in_navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    names = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert found == MADE | {name for name in names if not name.startswith(LISTED)}


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", re.sub(r"`[^`]*`", "", text)):
        path, _, anchor = target.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{page.name}: {target}; there are {', '.join(anchors(file))}"


def anchors(file: Path) -> list[str]:
    """Anchors of the headings as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", file.read_text(), flags=re.DOTALL), re.MULTILINE)
    return [
        re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).strip().replace(" ", "-") for heading in headings
    ]


def test_the_page_of_the_python_interface_has_every_public_name() -> None:
    text = (ROOT / "tools/site.py").read_text()
    shown = set(re.findall(r"^::: barewire\.(?:data\.)?(\w+)$", text, re.MULTILINE))
    assert shown == set(barewire.__all__) - {"__version__"}


def test_the_reference_has_every_command_and_option() -> None:
    text = reference()
    for words, command in commands():
        name = " ".join(("barewire", *words))
        assert f"\n## {name}\n" in text
        part = text[text.index(f"\n## {name}\n") :]
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" and not parameter.hidden else ():
                assert option in part, f"{name} {option}"
    assert "|||" not in text and text.count("\n```") % 2 == 0

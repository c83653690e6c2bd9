# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Hooks of the site's build (mkdocs.yml): pages that are made from the program, and links that leave docs/."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Links in Markdown: text and target. Images begin with an exclamation mark.
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
# What the theme loads where a browser starts no worker.
_FOREIGN_WORKER = "https://unpkg.com/iframe-worker/shim"
# What the site has of docs/.
_SHOWN = (".md", ".png", ".json")
_API = """# The Python interface

```python
import barewire

run = barewire.load("runs/first")
run.compare("tcp")
```

::: barewire.load

::: barewire.data.Run
"""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not below docs/; decisions and the notebook join the navigation."""
    from mkdocs.structure.files import File  # type: ignore[import-not-found]  # MkDocs has its own environment

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    made = {"index.md": readme, "commands.md": _commands(), "api.md": _API}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_config(config: Any) -> Any:
    """Complete the navigation by folders whose pages come and go."""
    inside = next(part for part in config.nav if "Inside" in part)["Inside"]
    decisions = sorted(path.name for path in (DOCS / "decisions").glob("[0-9]*.md"))
    notebook = sorted((path.name for path in (DOCS / "notebook").glob("[0-9]*.md")), reverse=True)
    inside += [
        {"Notebook": ["notebook/README.md", *(f"notebook/{name}" for name in notebook)]},
        {"Decisions": [f"decisions/{name}" for name in decisions]},
    ]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links to files outside docs/ into their names: the site has no such pages."""
    folder = ROOT if page.file.src_uri == "index.md" else (DOCS / page.file.src_uri).parent

    def resolved(found: re.Match[str]) -> str:
        bang, text, target = found.groups()
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path:
            return found[0]
        file = (folder / path).resolve()
        if file.suffix in _SHOWN and file.is_relative_to(DOCS):
            # README's links are seen from its own folder, and it is a page of docs/.
            target = file.relative_to(DOCS).as_posix() if folder == ROOT else path
            return f"{bang}[{text}]({target}{hash_}{anchor})"
        return f"{text} (`{file.relative_to(ROOT)}`)"

    return _LINK.sub(resolved, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Let the page search with our own script: the theme names one of another host."""
    return output.replace(_FOREIGN_WORKER, "../" * page.url.count("/") + "worker.js")


def on_post_template(output_content: str, **_: Any) -> str:
    """Likewise for the page that says that there is no such page."""
    return output_content.replace(_FOREIGN_WORKER, "worker.js")


def _commands() -> str:
    """Every command's help, by the interpreter that has barewire's libraries."""
    done = subprocess.run(
        [str(ROOT / ".venv/bin/python"), "-m", "barewire.cli.manual", "--markdown"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout

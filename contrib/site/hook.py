"""Makes one site of the documents in the repository.

MkDocs reads only docs/. This hook adds what these documents link to elsewhere in the repository: other documents as
pages, and programs, configurations and folders as pages that show them. It also turns GitHub's Markdown into the one
that MkDocs reads, so that each document looks the same on a forge.
"""

from __future__ import annotations

import logging
import os
import pathlib
import re
import subprocess
import typing

if typing.TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = REPOSITORY / "docs"

#: The site's folder of what lies outside docs/.
OUTSIDE = "repository"

#: The largest file that becomes a page, bytes.
MOST_BYTES = 300_000

#: Targets of links, in text and in pictures.
LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?P<after>\))")
CODE = re.compile(r"`[^`]+`")
ITEM = re.compile(r"(?P<mark>[-*]|\d+\.) +")
FENCE = re.compile(r" *(```+|~~~+)")

#: The one script that the theme would fetch from elsewhere, and ours, which does the same.
SHIM = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim[^"]*"></script>')
WORKER = "assets/worker.js"

#: How Pygments calls what is in a file, by its ending.
LANGUAGES = {
    ".conf": "ini",
    ".json": "json",
    ".lua": "lua",
    ".py": "python",
    ".rs": "rust",
    ".sbatch": "bash",
    ".service": "ini",
    ".sh": "bash",
    ".socket": "ini",
    ".toml": "toml",
    ".yml": "yaml",
}

log = logging.getLogger("mkdocs.infill")


def _is_outside(path: pathlib.Path) -> bool:
    return DOCUMENTS != path and DOCUMENTS not in path.parents


def _page_of(path: pathlib.Path) -> str:
    """The page that shows a file or folder of the repository, as a path below docs/."""
    if not _is_outside(path):
        return (path / "README.md" if path.is_dir() else path).relative_to(DOCUMENTS).as_posix()
    if path == REPOSITORY or path == REPOSITORY / "README.md":
        return "index.md"
    if path.is_dir():
        path = path / "README.md"
    name = f"{OUTSIDE}/{path.relative_to(REPOSITORY).as_posix()}"
    return name if name.endswith(".md") else f"{name}.md"


def _target(source: pathlib.Path, link: str) -> pathlib.Path | None:
    """The file or folder of the repository that a link in `source` names."""
    if ":" in link or link.startswith("/"):
        return None
    path = pathlib.Path(os.path.normpath(source.parent / link))
    return path if path.exists() and REPOSITORY in (path, *path.parents) else None


def _targets(source: pathlib.Path, markdown: str) -> typing.Iterator[pathlib.Path]:
    found = (_target(source, link["target"]) for link in LINK.finditer(markdown))
    yield from (path for path in found if path is not None)


def _tracked(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files of a folder that belong to the repository."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(folder / line for line in listing.stdout.splitlines())


def _of_folder(folder: pathlib.Path) -> str:
    """A page that lists the files of a folder."""
    lines = [f"# {folder.relative_to(REPOSITORY)}", ""]
    lines += [f"- [{path.relative_to(folder)}]({path.relative_to(folder)})" for path in _tracked(folder)]
    return "\n".join(lines) + "\n"


def _of_program(path: pathlib.Path) -> str:
    """A page that shows a file."""
    name = path.relative_to(REPOSITORY)
    text = path.read_text(encoding="utf-8")
    language = LANGUAGES.get(path.suffix, "bash" if text.startswith("#!") else "text")
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"# {name}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _markdown_of(path: pathlib.Path) -> str:
    """The page of a file or folder outside docs/."""
    if path.is_dir() and not (path / "README.md").exists():
        return _of_folder(path)
    path = path / "README.md" if path.is_dir() else path
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} is too long for a page of the site")
    return _of_program(path)


#: The file or folder that each page comes from.
_sources: dict[str, pathlib.Path] = {}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each file and folder outside docs/ that a document names."""
    from mkdocs.structure.files import File

    _sources.clear()
    waiting: list[pathlib.Path] = []
    for file in files.documentation_pages():
        path = DOCUMENTS / file.src_uri
        _sources[file.src_uri] = path
        waiting += _targets(path, file.content_string)
    # What the table of contents names may be linked from nowhere.
    waiting += [REPOSITORY / name for name in config.extra["repository"]]
    while waiting:
        path = waiting.pop()
        page = _page_of(path)
        if not _is_outside(path) or page in _sources or page == "index.md":
            continue
        markdown = _markdown_of(path)
        source = path / "README.md" if path.is_dir() else path
        _sources[page] = source
        files.append(File.generated(config, page, content=markdown))
        if source.suffix == ".md":
            waiting += _targets(source, markdown)
    return files


def _relinked(markdown: str, page: str) -> str:
    """The links of a page, which name files of the repository, as links between pages of the site."""
    source = _sources[page]

    def relinked(link: re.Match[str]) -> str:
        path = _target(source, link["target"])
        if path is None or not (_is_outside(path) or path.is_dir() or page.startswith(OUTSIDE)):
            return link[0]
        to = os.path.relpath(_page_of(path), os.path.dirname(page) or ".")
        return f"{link['before']}{to}{link['anchor'] or ''}{link['after']}"

    return "".join(part if is_code else LINK.sub(relinked, part) for part, is_code in _parts(markdown))


def _parts(markdown: str) -> typing.Iterator[tuple[str, bool]]:
    """The lines of a page, and whether they are code."""
    fence = ""
    for line in markdown.splitlines(keepends=True):
        mark = FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
            yield line, True
        elif fence:
            if mark and mark[1].startswith(fence):
                fence = ""
            yield line, True
        else:
            yield line, False


def _spaced(markdown: str) -> str:
    """Lists as MkDocs reads them: after an empty line, and with what belongs to an item indented by four."""
    lines: list[str] = []
    inside = 0  # The indentation of what belongs to the present item.
    before = ""
    for line, is_code in _parts(markdown):
        item = None if is_code else ITEM.match(line)
        if item:
            if not inside and before.strip():
                lines.append("\n")
            inside = len(item["mark"]) + 1
        elif inside and line.strip():
            if line.startswith(" " * inside):
                line = "    " + line[inside:]
                nested = ITEM.match(line.lstrip())
                if nested and not is_code and not ITEM.match(before.lstrip()) and before.strip():
                    lines.append("\n")
            elif not before.strip() or line[0] in "#|`":
                inside = 0
        lines.append(_without_escapes(line) if line.startswith("|") and not is_code else line)
        before = line
    return "".join(lines)


def _without_escapes(row: str) -> str:
    """A row of a table: a forge wants `\\|` in code, which MkDocs would show as it is."""
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), row)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Prepares a page for MkDocs."""
    return _spaced(_relinked(markdown, page.file.src_uri))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Lets the search work in pages that are opened as files."""
    root = os.path.relpath(".", os.path.dirname(page.file.src_uri) or ".")
    return SHIM.sub(f'<script src="{root}/{WORKER}"></script>', output)


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The same in the page for addresses that do not exist."""
    return SHIM.sub("", output_content)

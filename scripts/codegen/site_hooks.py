"""Hooks of MkDocs, for tasks that mkdocs.yml cannot express.

Pages link to files of the repository outside docs/, such as a header. On the site each of these
files becomes a page below source/, and the links lead there. A link to a file that does not exist,
and a page that loads something from another server, is an error.

The Python package is written to build/docs, where mkdocstrings reads it. It is generated from the
catalogue in docs/reference/catalogue.json, so that the library is not needed.
"""

import posixpath
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "build" / "docs" / "fastact"
CATALOGUE = ROOT / "docs" / "reference" / "catalogue.json"
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
CODE = re.compile(r"^( *)(```+).*?^\1\2`*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LANGUAGES = {
    ".h": "cpp", ".cuh": "cpp", ".cpp": "cpp", ".cu": "cpp", ".py": "python", ".cmake": "cmake",
    ".sh": "sh", ".json": "json", ".toml": "toml", ".yml": "yaml",
}  # fmt: skip
ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe)[^>]*\ssrc="?https?:|<link[^>]*stylesheet[^>]*https?:"""
)


def on_startup(command, dirty):
    """Writes the package. mkdocstrings ignores paths that do not exist when it starts."""
    version = re.search(r"^project\(FastAct\s+VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(),
                        re.MULTILINE)[1]  # fmt: skip
    script = Path(__file__).with_name("python_package.py")
    options = ("--version", version, "--catalogue", CATALOGUE)
    subprocess.run([sys.executable, script, PACKAGE, *options], check=True)


def on_config(config):
    development = next(entry for entry in config.nav if "Development" in entry)
    pages = sorted(path.name for path in (ROOT / "docs" / "dev").glob("*.md"))
    development["Development"] = [f"dev/{name}" for name in pages]
    return config


@dataclass(frozen=True)
class Source:
    """A file of the repository that the site shows: its path, its page, and the page's text."""

    path: str
    text: str

    @property
    def is_markdown(self) -> bool:
        return self.path.endswith(".md")

    @property
    def page(self) -> str:
        return f"source/{self.path}" if self.is_markdown else f"source/{self.path}.md"


@cache
def source_of(path: str) -> Source | None:
    """Returns what the site shows of a file or a folder, or None if there is no such file."""
    file = ROOT / path
    if path.startswith("..") or not file.exists():
        return None
    if file.is_dir():
        readme = f"{path}/README.md"
        if (ROOT / readme).exists():
            return source_of(readme)
        names = sorted(entry.name for entry in file.iterdir() if entry.is_file())
        return Source(readme, f"# `{path}`\n\n" + "".join(f"- [{n}]({n})\n" for n in names))
    text = file.read_text()
    if path.endswith(".md"):
        return Source(path, text)
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`+", text))])
    head = f"---\ntitle: {path}\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n"
    return Source(path, f"{head}{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text}\n{fence}\n")


def linked_source(origin: str, target: str) -> Source | None:
    """Returns the source that a link leads to, or None for a link within docs/ or to elsewhere.
    `origin` is the path of the linking file in the repository."""
    if re.match(r"[a-z]+:|/", target):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    if path == "docs" or path.startswith("docs/"):
        return None
    source = source_of(path)
    if source is None:
        raise PluginError(
            f"{origin}: expected a link to a file of the repository, but got {target}"
        )
    return source


def on_files(files, config):
    """Adds a page for each linked file outside docs/, and for the files that these files link
    to."""
    queue = [
        (f"docs/{file.src_uri}", Path(file.abs_src_path).read_text())
        for file in files.documentation_pages()
    ]
    while queue:
        origin, text = queue.pop()
        for match in LINK.finditer(CODE.sub("", text)):
            source = linked_source(origin, match[1])
            if source is not None and source.page not in files.src_uris:
                files.append(File.generated(config, source.page, content=source.text))
                if source.is_markdown:
                    queue.append((source.path, source.text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Rewrites links to files outside docs/, and links from these files to docs/, to pages of the
    site."""
    uri = page.file.src_uri
    is_source = uri.startswith("source/")
    origin = uri.removeprefix("source/") if is_source else f"docs/{uri}"
    if is_source and (ROOT / origin.removesuffix(".md")).is_file():
        return markdown  # of code
    code = [match.span() for match in CODE.finditer(markdown)]

    def rewritten(match):
        if any(start <= match.start() < end for start, end in code):
            return match[0]
        source = linked_source(origin, match[1])
        if source is not None:
            target = source.page
        elif is_source and not re.match(r"[a-z]+:|/", match[1]):
            joined = posixpath.join(posixpath.dirname(origin), match[1])
            target = posixpath.normpath(joined).removeprefix("docs/")
        else:
            return match[0]
        return posixpath.relpath(target, posixpath.dirname(uri) or ".") + (match[2] or "")

    return LINK.sub(rewritten, markdown)


def on_post_page(output, page, config):
    if found := ELSEWHERE.search(output):
        raise PluginError(f"{page.file.src_uri}: expected nothing of another server: {found[0]}")
    return output

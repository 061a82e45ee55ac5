"""Check the Markdown files: what they link to, name or show must exist.

- a relative link leads to a file, and its anchor to a heading;
- every `examples/…` path that is named anywhere exists;
- every Python, YAML or JSON block stands word for word in a file under `examples/`, where it is
  tested. A JSON result, which no file holds, is fenced as `text`.

Usage: check_docs.py [ROOT]. Prints one line a problem; exit code 1 if there is any.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

SKIPPED_FOLDERS = {"build", "dist", "node_modules", "__pycache__"}
SNIPPET_LANGUAGES = {"python", "yaml", "json"}

FENCE = re.compile(r"^\s*(`{3,}|~{3,})\s*(\w*)")
CODE_SPAN = re.compile(r"`[^`]*`")
INLINE_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
REFERENCE_LINK = re.compile(r"^\s*\[[^\]]+\]:\s*<?([^\s>]+)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)
EXAMPLE_PATH = re.compile(r"(?<![\w./-])examples/[\w./-]*")


class Problem(NamedTuple):
    file: Path
    line: int
    message: str


class Block(NamedTuple):
    line: int
    language: str
    text: str


def markdown_files(root: Path) -> list[Path]:
    """All Markdown files but those in hidden or generated folders."""
    return sorted(
        path
        for path in root.rglob("*.md")
        if not any(
            part.startswith(".") or part in SKIPPED_FOLDERS
            for part in path.relative_to(root).parts[:-1]
        )
    )


def split_blocks(text: str) -> tuple[list[tuple[int, str]], list[Block]]:
    """Separate the lines of prose, numbered from 1, from the fenced blocks."""
    prose: list[tuple[int, str]] = []
    blocks: list[Block] = []
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if fence:
            if match and match[1].startswith(fence) and not match[2]:
                fence = ""
            else:
                blocks[-1] = blocks[-1]._replace(text=blocks[-1].text + line + "\n")
        elif match:
            fence = match[1]
            blocks.append(Block(number, match[2].lower(), ""))
        else:
            prose.append((number, line))
    return prose, blocks


def anchors(file: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a file."""
    found: set[str] = set()
    for _, line in split_blocks(file.read_text())[0]:
        if match := HEADING.match(line):
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).lower()
            slug = base = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            count = 0
            while slug in found:
                count += 1
                slug = f"{base}-{count}"
            found.add(slug)
    return found


def check_link(file: Path, target: str) -> str | None:
    """What is wrong with a link in `file`, or None."""
    if SCHEME.match(target) or target.startswith("//"):
        return None
    path, _, anchor = unquote(target).partition("#")
    destination = file.parent / path if path else file
    if not destination.exists():
        return f"link to {target}: no such file"
    if anchor and destination.suffix == ".md" and anchor.lower() not in anchors(destination):
        return f"link to {target}: no such heading"
    return None


def example_snippets(root: Path) -> str:
    files = sorted((root / "examples").rglob("*"))
    suffixes = {".py", ".yaml", ".yml", ".json"}
    return "\n".join(path.read_text() for path in files if path.suffix in suffixes)


def check_file(root: Path, file: Path, snippets: str) -> Iterator[Problem]:
    text = file.read_text()
    prose, blocks = split_blocks(text)
    for number, line in prose:
        plain = CODE_SPAN.sub("", line)
        for target in INLINE_LINK.findall(plain) + REFERENCE_LINK.findall(plain):
            if message := check_link(file, target):
                yield Problem(file, number, message)
    for number, line in enumerate(text.splitlines(), start=1):
        for name in EXAMPLE_PATH.findall(line):
            if not (root / name.rstrip(".")).exists():
                yield Problem(file, number, f"{name} does not exist")
    for block in blocks:
        if block.language in SNIPPET_LANGUAGES and block.text.strip() not in snippets:
            message = f"this {block.language} block is in no file under examples/"
            yield Problem(file, block.line, message)


def find_problems(root: Path) -> list[Problem]:
    snippets = example_snippets(root)
    return [
        problem for file in markdown_files(root) for problem in check_file(root, file, snippets)
    ]


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    problems = find_problems(root)
    for file, line, message in problems:
        print(f"{file.relative_to(root)}:{line}: {message}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

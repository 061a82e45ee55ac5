from pathlib import Path

import pytest

from check_docs import anchors, find_problems

ROOT = Path(__file__).parents[1]


def messages(root: Path) -> list[str]:
    return [problem.message for problem in find_problems(root)]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "tiny.py").write_text("import heterps\n\nheterps.plan()\n")
    (tmp_path / "other.md").write_text("# The *other* page\n## Same\n## Same\n")
    return tmp_path


def test_the_documentation_of_this_repository_is_sound():
    assert find_problems(ROOT) == []


def test_sound_links_names_and_snippets_pass(site: Path):
    (site / "README.md").write_text(
        "[a](other.md) [b](other.md#the-other-page) [c](#top) [d](https://example.org/x)\n"
        "# Top\nsee examples/tiny.py.\n```python\nheterps.plan()\n```\n"
        "```text\n[not](a-link.md)\n```\n`[nor](this.md)`\n"
    )
    assert messages(site) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a](missing.md)", "link to missing.md: no such file"),
        ("![a](img/missing.png)", "link to img/missing.png: no such file"),
        ("[a]: missing.md", "link to missing.md: no such file"),
        ("[a](other.md#nowhere)", "link to other.md#nowhere: no such heading"),
        ("[a](#nowhere)", "link to #nowhere: no such heading"),
        ("run `examples/missing.yaml`", "examples/missing.yaml does not exist"),
        ("```text\nexamples/missing.py\n```", "examples/missing.py does not exist"),
        ("```python\nheterps.fly()\n```", "this python block is in no file under examples/"),
        ("```json\n{}\n```", "this json block is in no file under examples/"),
    ],
)
def test_what_does_not_exist_is_reported(site: Path, text: str, message: str):
    (site / "README.md").write_text(f"# Top\n{text}\n")
    assert messages(site) == [message]


def test_a_problem_names_file_and_line(site: Path):
    (site / "README.md").write_text("one\n\n[a](missing.md)\n")
    (problem,) = find_problems(site)
    assert (problem.file.name, problem.line) == ("README.md", 3)


def test_generated_and_hidden_folders_are_left_out(site: Path):
    for folder in (".venv", "build"):
        (site / folder).mkdir()
        (site / folder / "x.md").write_text("[a](missing.md)")
    assert messages(site) == []


def test_equal_headings_get_numbered_anchors(site: Path):
    assert anchors(site / "other.md") == {"the-other-page", "same", "same-1"}

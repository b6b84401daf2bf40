"""The release: one version everywhere, and packages of that version alone."""

import re
import sys
import tarfile

import pytest

from support import REPOSITORY

pytestmark = pytest.mark.kernels

sys.path.append(str(REPOSITORY / "scripts" / "build"))

import package_metadata  # noqa: E402
import release  # noqa: E402

import fastact  # noqa: E402  isort: skip

DATED = "# Changelog\n\n## [1.2.3] - 2098-01-02\n\ntext\n"


def test_the_version_is_the_same_everywhere():
    version = package_metadata.version()
    assert fastact.__version__ == version
    assert release.section_of(release.CHANGELOG.read_text())[0] == version
    assert not re.search(r"^version\s*=", (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)


def test_a_release_has_no_problems():
    assert release.problems("1.2.3", DATED, "", ["v1.2.2"]) == []


@pytest.mark.parametrize(
    "changes, sentence",
    (
        ({"version": "1.2.4"}, "expected CHANGELOG.md to begin with version 1.2.4"),
        ({"changelog": DATED.replace("2098-01-02", "unreleased")}, "expected a date"),
        ({"changelog": "no section"}, "but got ''"),
        ({"changed": " M README.md"}, "expected no uncommitted change"),
        ({"tags": ["v1.2.3"]}, "v1.2.3 exists"),
    ),
)
def test_what_keeps_a_tree_from_being_a_release(changes, sentence):
    tree = {"version": "1.2.3", "changelog": DATED, "changed": "", "tags": []}
    assert any(sentence in problem for problem in release.problems(**{**tree, **changes}))


def test_the_files_of_a_release_are_complete_and_of_one_version():
    wheel, sources = "fastact-1.2.3-py3-none-linux.whl", "fastact-1.2.3.tar.gz"
    assert release.missing_files("1.2.3", [wheel, sources]) == []
    assert release.missing_files("1.2.3", [sources]) == ["a wheel"]
    assert release.missing_files("1.2.3", [wheel]) == [sources]
    old = "fastact-1.2.2-py3-none-linux.whl"
    assert release.missing_files("1.2.3", [wheel, old, sources]) == [old]


def test_the_source_distribution_has_what_a_build_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTACT_TORCHES", "2.11.0 2.15.0")
    pytest.importorskip("scikit_build_core")
    monkeypatch.chdir(tmp_path)
    release.sdist(tmp_path)
    (path,) = tmp_path.glob("fastact-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        pages = [n for n in archive.getnames() if n.endswith("PKG-INFO")]
        text = archive.extractfile(pages[0]).read().decode()
    expected = {"CMakeLists.txt", "LICENSE", "ops/catalogue.h", "prove/digests.json"}
    expected |= {"scripts/codegen/python_package.py", "python/fastact/__init__.py"}
    assert expected <= names
    assert f"Version: {package_metadata.version()}" in text
    assert not any(name.startswith(("build/", ".venv")) for name in names)


def test_no_page_names_a_tag_that_does_not_exist():
    tags = release.git("tag", "--list").split()
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    for page in pages:
        text = re.sub(r"https?://\S+", "", page.read_text())
        named = set(re.findall(r"\bv\d+\.\d+\.\d+\b", text))
        assert named <= set(tags), page.name

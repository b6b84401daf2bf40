"""import fastact: which library it loads, how often, and its error messages."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

from support import REPOSITORY, build_info, package_path, python

import fastact  # isort: skip
from fastact import _library  # isort: skip

sys.path += [str(REPOSITORY / "cpp_tests" / "consumers"), str(REPOSITORY / "scripts" / "build")]

import check_package  # noqa: E402

import package_metadata  # noqa: E402

MINOR = ".".join(torch.__version__.split(".")[:2])
WORKS = "print(torch.ops.fastact.selu(torch.ones(3)).shape[0], fastact.library_path)"


def run(script, package=None):
    """Imports a package in a new process. Returns (exit code, stdout, last line of stderr)."""
    path = (package or package_path()).parent
    done = python("-W", "error", "-c", script, environment={"PYTHONPATH": str(path)})
    return done.returncode, done.stdout.strip(), (done.stderr.strip().splitlines() or [""])[-1]


@pytest.fixture
def copied(tmp_path):
    """Returns a copy of the package that a test can break. Its libraries are links."""
    package = tmp_path / "fastact"
    ignored = shutil.ignore_patterns("__pycache__", "lib")
    shutil.copytree(package_path(), package, ignore=ignored)
    (package / "lib" / f"torch-{MINOR}").mkdir(parents=True)
    for name in ("libfastact_kernels.so", f"torch-{MINOR}/libfastact.so"):
        (package / "lib" / name).symlink_to(package_path() / "lib" / name)
    return package


def replace_in(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def import_error(package, before=""):
    code, _, line = run(f"{before}\nimport fastact", package)
    assert code == 1 and line.startswith("ImportError: fastact: "), line
    return line.removeprefix("ImportError: ")


def test_the_version_is_the_librarys():
    assert fastact.__version__ == build_info()["version"]
    listed = (REPOSITORY / "CMakeLists.txt").read_text()
    assert re.search(r"^project\(FastAct\s+VERSION (.*)$", listed, re.M)[1] == fastact.__version__


def test_paths_are_in_the_package():
    folder = Path(fastact.__file__).parent
    assert Path(fastact.library_path) == folder / "lib" / f"torch-{MINOR}" / "libfastact.so"
    assert Path(fastact.cmake_prefix_path) == folder
    assert (folder / "py.typed").is_file()
    for file in check_package.EXPECTED:
        if file.endswith(".so"):
            file = file.replace("lib/", f"lib/torch-{MINOR}/")
        assert (folder / file).is_file(), file


@pytest.mark.slow
def test_importing_registers_the_operators():
    code, out, error = run(f"import torch, fastact\n{WORKS}")
    assert (code, out) == (0, f"3 {fastact.library_path}"), error


@pytest.mark.parametrize(
    "before",
    (
        "torch.ops.load_library(PATH)",
        "ctypes.CDLL(PATH)",
        # The library of a C++ installation of the same version.
        "torch.ops.load_library(os.environ['FASTACT_LIBRARY'])",
        "ctypes.CDLL(os.environ['FASTACT_LIBRARY'])",
    ),
)
def test_a_library_that_is_loaded_already_is_not_loaded_again(before):
    """A second registration of an operator would abort the process."""
    start = f"import ctypes, os, torch\nPATH = {fastact.library_path!r}\n{before}\n"
    code, out, error = run(f"{start}import fastact\n{WORKS}")
    assert (code, out) == (0, f"3 {fastact.library_path}"), error


def test_loading_the_library_after_the_import_is_harmless():
    after = "torch.ops.load_library(fastact.library_path)\nctypes.CDLL(fastact.library_path)"
    code, out, error = run(f"import ctypes, torch, fastact\n{after}\n{WORKS}")
    assert (code, out[:1]) == (0, "3"), error


def test_another_version_that_is_loaded_already_is_refused(copied):
    version = fastact.__version__
    replace_in(copied / "_build.py", f'VERSION = "{version}"', 'VERSION = "9.8.7"')
    load = f"import torch; torch.ops.load_library({fastact.library_path!r})"
    assert import_error(copied, load) == (
        "fastact: expected version 9.8.7 of the library, but this process has loaded version "
        f"{version} already: load only one of them, or install fastact {version}"
    )


@pytest.mark.parametrize(
    ("built_for", "words"),
    (
        (("9.9",), "torch 9.9, for"),
        (("9.10", "9.9"), "torch 9.9 or 9.10, for"),
        (("10.0", "9.11", "9.9"), "torch 9.9, 9.11 or 10.0, for"),
    ),
)
def test_another_torch_is_refused(tmp_path, monkeypatch, built_for, words):
    for name in built_for:
        (tmp_path / f"torch-{name}").mkdir()
    monkeypatch.setattr(_library, "_FOLDER", tmp_path)
    with pytest.raises(ImportError) as raised:
        _library.load()
    assert str(raised.value) == (
        f"fastact: expected {words} which fastact {fastact.__version__} was built, but got torch "
        f"{torch.__version__}: install one of these versions, or build fastact for this torch with "
        "`pip install .` in its source tree"
    )


def test_another_cuda_is_refused(copied):
    text = (copied / "_build.py").read_text()
    (copied / "_build.py").write_text(re.sub(r"= (None|\".*\")$", '= "99.1"', text))
    has = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    assert import_error(copied) == (
        f"fastact: expected a torch with CUDA 99, for which fastact {fastact.__version__} was "
        f"built, but got torch {torch.__version__} with {has}: install another torch, or the "
        "CPU-only wheel of fastact"
    )


def test_a_library_that_does_not_load_is_a_sentence(copied):
    (copied / "lib" / "libfastact_kernels.so").unlink()
    library = copied / "lib" / f"torch-{MINOR}" / "libfastact.so"
    original = library.resolve()
    library.unlink()
    shutil.copy(original, library)
    assert re.fullmatch(
        rf"fastact: expected {re.escape(str(library))} to load, but got: "
        r"libfastact_kernels\.so: cannot open shared object file.*",
        import_error(copied),
    )


def test_a_torch_without_a_function_is_a_sentence(copied):
    """Tests a torch of the right version that lacks a function."""
    library = copied / "lib" / f"torch-{MINOR}" / "libfastact.so"
    binary = library.read_bytes()
    library.unlink()
    name = b"assert_no_internal_overlap"
    assert name in binary
    library.write_bytes(binary.replace(name, name[:-1] + b"q"))
    assert import_error(copied) == (
        f"fastact: expected torch {torch.__version__} to have all functions that {library} calls, "
        "but it lacks some: install a release of torch"
    )


def test_libraries_need_nothing_foreign():
    if not shutil.which("readelf"):
        pytest.skip("no readelf")
    kernels = package_path() / "lib" / "libfastact_kernels.so"
    needed, paths = check_package.dynamic_entries("readelf", kernels)
    assert not paths
    assert not [name for name in needed if re.search("torch|c10|python|cudart|fastact", name)]
    needed, paths = check_package.dynamic_entries("readelf", Path(fastact.library_path))
    assert paths == ["$ORIGIN/.."]
    assert "libfastact_kernels.so" in needed and "libtorch_cpu.so" in needed
    foreign = {n for n in needed if not check_package.NEEDED.fullmatch(n)}
    assert foreign == {"libfastact_kernels.so"}


def test_kernels_are_not_in_the_library_twice():
    """The thin library contains no kernel: none of its symbols is large."""
    thin = Path(fastact.library_path).stat().st_size
    assert thin < (package_path() / "lib" / "libfastact_kernels.so").stat().st_size / 2


def test_no_file_names_the_build_machine():
    forbidden = [str(REPOSITORY), str(Path(torch.__file__).parent)]
    for path in package_path().rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            data = path.read_bytes()
            assert not [word for word in forbidden if word.encode() in data], path


# ---- A wheel's metadata


@pytest.mark.parametrize(
    ("torches", "expected"),
    (
        ("2.15.0", "torch>=2.15,<2.16"),
        ("2.15.0 2.14.1 2.11.0", "torch>=2.11,<2.16"),
        ("2.9.1+cpu 2.10.0", "torch>=2.9,<2.11"),
    ),
)
def test_a_wheel_requires_the_torches_of_its_libraries(monkeypatch, torches, expected):
    monkeypatch.setenv("FASTACT_TORCHES", torches)
    found = package_metadata.dynamic_metadata({}, {})
    assert found["dependencies"] == [expected, "tqdm"]


def test_a_build_in_an_environment_requires_its_torch(monkeypatch):
    monkeypatch.delenv("FASTACT_TORCHES", raising=False)
    # Like pip, hides the environment's packages from the build.
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    (found,) = package_metadata.torch_versions()
    assert found.split("+")[0] == torch.__version__.split("+")[0]


def test_a_build_without_torch_is_a_sentence(monkeypatch):
    monkeypatch.delenv("FASTACT_TORCHES", raising=False)
    monkeypatch.setattr(package_metadata, "FIND", "raise SystemExit(1)")
    with pytest.raises(SystemExit, match="^fastact: expected a torch in the environment"):
        package_metadata.torch_versions()


def test_a_wheel_has_the_librarys_version(monkeypatch):
    monkeypatch.delenv("FASTACT_WHEEL_LABEL", raising=False)
    assert package_metadata.version() == fastact.__version__
    monkeypatch.setenv("FASTACT_WHEEL_LABEL", "cpu")
    assert package_metadata.version() == f"{fastact.__version__}+cpu"

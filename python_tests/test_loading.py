"""Loading the library, its build_info(), and the libraries that it links."""

import re
import shutil
import subprocess

import pytest
import torch

from support import build_info, library_path, python, run_python


def test_loading_twice_is_harmless():
    script = """
import os, torch
path = os.environ["FASTACT_LIBRARY"]
torch.ops.load_library(path)
x = torch.ones(3, requires_grad=True)
y = torch.ops.fastact.selu(x)
torch.ops.load_library(path)
torch.ops.load_library(os.path.join(os.path.dirname(path), ".", os.path.basename(path)))
import ctypes
ctypes.CDLL(path)
y.sum().backward()
print(torch.ops.fastact.selu(x).shape[0])
"""
    assert run_python("-c", script).strip() == "3"


@pytest.mark.parametrize("name", ("libfastact.so", "libfastact_aten.so"))
def test_unloading_leaves_what_torch_holds(name):
    """torch calls graph nodes and deleters of results even after dlclose() closes their library."""
    script = """
import _ctypes, ctypes, os, sys, torch

def load():
    return [ctypes.CDLL(path) for path in dict.fromkeys(sys.argv[1:])]

def unload(handles):
    for handle in reversed(handles):
        _ctypes.dlclose(handle._handle)

def forward(x):
    ops = torch.ops.fastact
    return ops.fused_silu(ops.selu(x), gate=torch.nn.functional.elu(x))

x = torch.randn(1 << 21)
results = []
handles = load()
if len(handles) > 1:
    torch.ops.fastact_aten.begin()
for _ in range(2):
    leaf = x.clone().requires_grad_()
    y = forward(leaf)
    (first,) = torch.autograd.grad(y.sum(), leaf, create_graph=True)
    unload(handles)
    first.sum().backward()
    results.append((y.detach(), leaf.grad))
    assert torch.equal(forward(x), y)
    del y, first, leaf
    handles = load()
assert all(map(torch.equal, *results))
print("done")
"""
    library = library_path()
    printed = run_python("-c", script, library, library.with_name(name))
    assert printed.strip() == "done"


def test_loading_from_another_directory(tmp_path):
    script = "import os, torch; torch.ops.load_library(os.environ['FASTACT_LIBRARY']); print(1)"
    assert run_python("-c", script, cwd=tmp_path).strip() == "1"


def test_a_torch_without_a_function_is_refused_by_a_sentence(tmp_path):
    """Tests a torch of the right version that lacks a function."""
    name = b"assert_no_internal_overlap"
    binary = library_path().read_bytes()
    assert name in binary
    changed = tmp_path / "libfastact.so"
    changed.write_bytes(binary.replace(name, name[:-1] + b"q"))
    script = """
import os, torch
torch.ops.load_library(os.environ["FASTACT_LIBRARY"])
print(hasattr(torch.ops.fastact, "selu"))
"""
    done = python("-c", script, environment={"FASTACT_LIBRARY": str(changed)})
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    version = ".".join(build_info()["torch"].split(".")[:2])
    assert re.match(
        rf"fastact: expected torch {re.escape(version)}, for which this library was built, but got "
        r"one without \d+ of the functions that it calls, such as _Z\w+assert_no_internal_overlaq",
        done.stderr,
    )


def test_build_info():
    info = build_info()
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", info["version"])
    assert re.fullmatch(r"[0-9a-f]{7,40}\S*|unknown", info["revision"])
    assert info["torch"].split(".")[:2] == torch.__version__.split(".")[:2]
    assert info["cpu instruction set in use"] in info["cpu instruction sets"].split()
    if info["cuda"] != "none":
        assert re.match(r"\d+\.\d+", info["cuda"])
        assert re.search(r"\d+\.\d", info["cuda architectures"])


def test_links_to_torch_but_not_to_python():
    if not shutil.which("readelf"):
        pytest.skip("no readelf")
    listing = subprocess.run(
        ["readelf", "-d", library_path()], capture_output=True, text=True, check=True
    ).stdout
    needed = re.findall(r"NEEDED.*\[(.*)\]", listing)
    assert any(n.startswith("libtorch_cpu") for n in needed)
    assert any(n.startswith("libc10") for n in needed)
    assert not [n for n in needed if "python" in n or n.startswith("libcudart")]

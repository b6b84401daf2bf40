"""Loads the library, and defines the fixtures that parametrize the tests."""

import gc
import os
import re
import sys
import tempfile

import pytest
import torch

from op_table import ACTIVATIONS, REPRESENTATIVES
from selection import selected
from support import DTYPES, NIGHTLY, dtype_name, library_path, package_path

if not library_path().exists():
    pytest.exit(f"{library_path()} does not exist: build it, or name it in FASTACT_LIBRARY", 1)
torch.ops.load_library(str(library_path()))
# The Python package of the same build. It finds the operators already registered.
sys.path.append(str(package_path().parent))
# On a GPU, TorchScript's fuser compiles kernels that an override does not cover.
os.environ["PYTORCH_TENSOREXPR"] = "0"
if "OMP_NUM_THREADS" not in os.environ:  # runs under ThreadSanitizer set it to 1
    torch.set_num_threads(2)


def missing_gpu():
    """Returns why GPU tests cannot run on this machine, or None."""
    if not torch.cuda.is_available():
        return "no GPU that this torch can use"
    if not torch._C._dispatch_has_kernel_for_dispatch_key("fastact::relu", "CUDA"):
        return "libfastact was built without CUDA"
    return None


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def pytest_addoption(parser):
    parser.addoption("--op", help="only the tests of these activations, such as gelu,mish")
    parser.addoption("--strength", type=int, default=2, choices=(1, 2), help="of covering arrays")


def pytest_configure(config):
    config.addinivalue_line("markers", "kernels: of what is below ops/, which no torch changes")
    config.addinivalue_line("markers", "newest: of a program for which one torch is enough")
    config.addinivalue_line("markers", "slow: left out by `make test`, run by `make test-slow`")
    config.addinivalue_line("markers", "every_combination: of parameters, unless --strength is 1")
    if not hasattr(config, "workerinput") and "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        # All processes of this run share what they compile. A later run finds none of it.
        folder = tempfile.TemporaryDirectory(prefix="fastact-inductor-")
        config.add_cleanup(folder.cleanup)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder.name


def pytest_collection_modifyitems(config, items):
    """Sorts slow tests to the front, so that none of them runs alone at the end. Selects cases as
    selection.py describes, and with --op the cases of some activations. Without a GPU, keeps one
    case of each GPU test, to skip it."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    kept = items
    if missing_gpu() is not None:
        seen, kept = set(), []
        for item in items:
            needs_gpu = hasattr(item, "callspec") and item.callspec.params.get("device") == "cuda"
            needs_gpu = needs_gpu or "cuda" in item.fixturenames
            if not (needs_gpu and item.function in seen):
                kept.append(item)
            if needs_gpu:
                seen.add(item.function)
    chosen = selected(kept, config.getoption("--strength"))
    if names := config.getoption("--op"):
        acts = "|".join(names.split(","))
        own = re.compile(rf"(?<!\w)(fused_)?({acts})(_backward|_and_mul\w*)?(?!\w)")
        chosen = [item for item in chosen if own.search(item.name)]
    chosen_set = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen_set])
    items[:] = chosen


def pytest_collection_finish(session):
    """Freezes the collected tests, so that garbage collection in a test does not visit them."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc):
    """Parametrizes `act`: all activations in the nightly run and in modules with EVERY_ACTIVATION,
    which test formulas. Otherwise one activation of each kind, because the operators of a kind come
    from the same templates."""
    own = any("act" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "act" in metafunc.fixturenames and not own:
        every = getattr(metafunc.module, "EVERY_ACTIVATION", False) or NIGHTLY
        acts = ACTIVATIONS if every else REPRESENTATIVES
        metafunc.parametrize("act", acts, ids=[act.id for act in acts])


@pytest.fixture(params=DTYPES, ids=dtype_name)
def dtype(request):
    return request.param


@pytest.fixture(params=(torch.bfloat16, torch.float16), ids=dtype_name)
def half(request):
    return request.param


@pytest.fixture(params=("cpu", "cuda"))
def device(request):
    if request.param == "cuda" and (reason := missing_gpu()):
        pytest.skip(reason)
    return request.param


@pytest.fixture
def cuda():
    if reason := missing_gpu():
        pytest.skip(reason)
    return "cuda"


@pytest.fixture
def fresh_compiler():
    """Resets torch.compile before and after the test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def few_objects():
    """Freezes existing objects, so that garbage collection in the test visits only its own objects.
    Visiting all objects of pytest and torch takes up to a second."""
    gc.collect()
    gc.freeze()

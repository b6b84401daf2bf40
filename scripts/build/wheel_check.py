"""Checks the wheels of `make wheel`: their contents, and each wheel in new environments.

    python scripts/build/wheel_check.py DIST ENVIRONMENT...

ENVIRONMENT is a virtual environment with one of the versions of torch. A new environment reuses its
packages, so nothing is downloaded. In the new environment, installs the wheel, runs `pip check`,
calls every function and module, builds C++ programs with find_package, and verifies bits.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "cpp_tests" / "consumers"))

from check_package import NEEDED, dynamic_entries, strong_torch_references  # noqa: E402

LARGEST = 100  # MiB
EXPECTED = (
    "fastact/__init__.py",
    "fastact/functional.py",
    "fastact/nn.py",
    "fastact/py.typed",
    "fastact/_digests/recorded.json",
    "fastact/include/fastact/fastact.h",
    "fastact/include/fastact/optimize.h",
    "fastact/include/fastact/override.h",
    "fastact/lib/libfastact_kernels.so",
    "fastact/lib/cmake/FastAct/FastActConfig.cmake",
    "fastact/lib/cmake/FastAct/FindLibTorch.cmake",
)
# The formulas for torch.compile's kernels.
EXPECTED_ON_X86 = ("fastact/include/fastact/formulas/ops/codegen/inlined.h",)
NAME = re.compile(r"fastact-[\d.]+(\+cpu)?-py3-none-manylinux_(\d+)_(\d+)_(\w+)\.whl")

# The other FastAct libraries that each library needs, and its search path for them.
OWN = {
    "libfastact_kernels.so": (set(), []),
    "libfastact.so": ({"libfastact_kernels.so"}, ["$ORIGIN/.."]),
    "libfastact_aten.so": ({"libfastact.so"}, ["$ORIGIN"]),
}

# Runs in a process with only the installed wheel. Compares every function and module with torch's.
TRY = """
import torch, fastact
print(fastact.__version__, torch.__version__, fastact.library_path)
x = torch.linspace(-4, 4, 144).reshape(4, 6, 6)  # Softmax2d takes images, GLU an even size
given = {"prelu": (torch.tensor(0.25),), "threshold": (0.5, 0.25), "threshold_": (0.5, 0.25)}
given |= {"rms_norm": ((6,),), "layer_norm": ((6,),), "group_norm": (3,)}
classes = torch.arange(24).reshape(4, 6) % 6
given["cross_entropy"] = (classes,)
given |= {"add_rms_norm": (x, (6,)), "add_layer_norm": (x, (6,))}
tried = 0
for name in fastact.functional.__all__:
    y = getattr(fastact.functional, name)(x.clone(), *given.get(name, ()))
    theirs = getattr(torch.nn.functional, name, None)
    if theirs is not None:
        torch.testing.assert_close(y, theirs(x.clone(), *given.get(name, ())))
    tried += 1
given = {"Threshold": (0.5, 0.25), "RMSNorm": (6,), "LayerNorm": (6,), "GroupNorm": (3, 6)}
given |= {f"InstanceNorm{dimensions}d": (6,) for dimensions in (1, 2, 3)}
sizes = {"InstanceNorm2d": (4, 6, 3, 2), "InstanceNorm3d": (4, 6, 3, 2, 1)}
for name in fastact.nn.__all__:
    module = getattr(fastact.nn, name)(*given.get(name, ())).eval()  # RReLU is random in training
    theirs = getattr(torch.nn, name, None)
    assert theirs is None or isinstance(module, theirs)
    shaped = x.view(sizes.get(name, x.shape))
    operands = (shaped, classes) if name == "CrossEntropyLoss" else (shaped,)
    torch.testing.assert_close(torch.jit.script(module)(*operands), module(*operands))
    tried += 1
print(tried, "functions and modules")
with fastact.override_aten():
    assert torch.equal(torch.nn.functional.mish(x), fastact.functional.mish(x))
    print(len(fastact.overridden_aten_kernels()), "kernels of ATen's replaced")
"""

# Programs of cpp_tests/consumers that link libfastact.so and libfastact_aten.so.
PROGRAMS = ("calls", "overrides")

PREFIX = "import fastact; print(fastact.cmake_prefix_path)"
SITE = "import site; print(site.getsitepackages()[0])"


def fail(problem: str) -> None:
    sys.exit(f"wheel_check: {problem}")


def run(*command: object, **options) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


def newest_glibc(library: Path) -> tuple[int, int]:
    """Returns the newest version of glibc that a symbol requires."""
    found = re.findall(r"\bGLIBC_(\d+)\.(\d+)", run("readelf", "-V", library))
    return max((int(major), int(minor)) for major, minor in found)


def inspect(wheel: Path, folder: Path) -> None:
    """Checks the contents of the wheel. Prints its size and its requirements."""
    match = NAME.fullmatch(wheel.name)
    if match is None:
        fail(f"expected a name like fastact-0.1.0-py3-none-manylinux_2_34_x86_64.whl, got {wheel}")
    size = wheel.stat().st_size / (1 << 20)
    if size >= LARGEST:
        fail(f"expected {wheel} to be under {LARGEST} MiB, but got {size:.1f}")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        names = set(archive.namelist())
    expected = EXPECTED + (EXPECTED_ON_X86 if match[4] == "x86_64" else ())
    missing = [name for name in expected if name not in names]
    if missing:
        fail(f"expected {missing} in {wheel}, but they are missing")

    libraries = sorted(folder.rglob("*.so*"))
    strange = [
        path for path in libraries
        if path.name not in ("libfastact.so", "libfastact_aten.so", "libfastact_kernels.so")
    ]  # fmt: skip
    if strange:
        fail(f"expected no libraries of others, but got {strange}")
    tagged = (int(match[2]), int(match[3]))
    for library in libraries:
        where = library.relative_to(folder)
        needed, paths = dynamic_entries("readelf", library)
        allowed, search = OWN[library.name]
        thin = library.name != "libfastact_kernels.so"
        foreign = [n for n in needed if n not in allowed and not NEEDED.fullmatch(n)]
        if not thin:
            foreign += [n for n in needed if re.search("torch|c10", n)]
        if foreign or any("python" in name for name in needed):
            fail(f"expected {where} to need nothing foreign, but got {needed}")
        if paths != search:
            fail(f"expected {where} to have the search path {search}, but got {paths}")
        if (newest := newest_glibc(library)) > tagged:
            fail(f"expected {where} to run with glibc {tagged}, but it needs {newest}")
        if references := strong_torch_references("nm", library):
            fail(f"expected {where} to load in any torch, but it needs {references[0]}")
    for path in folder.rglob("*"):
        if path.is_file() and str(ROOT).encode() in path.read_bytes():
            fail(f"expected no path of the build machine, but {path.relative_to(folder)} has one")

    glibc = max(newest_glibc(library) for library in libraries)
    print(f"{wheel.name}: {size:.1f} MiB, needs glibc {glibc[0]}.{glibc[1]}", flush=True)
    for library in libraries:
        print(f"  {library.stat().st_size / (1 << 20):6.1f} MiB  {library.relative_to(folder)}")


def install(wheel: Path, environment: Path, folder: Path) -> None:
    """Installs the wheel in a new environment with that environment's torch."""
    python = folder / "bin" / "python"
    # Without pip, whose setuptools would hide the one that torch requires.
    run(environment / "bin" / "python", "-m", "venv", "--without-pip", folder)
    pip = (environment / "bin" / "python", "-m", "pip", "--python", python)
    lent, own = (run(p, "-c", SITE).strip() for p in (environment / "bin" / "python", python))
    (Path(own) / "lent.pth").write_text(f"import site; site.addsitedir({lent!r})\n")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FASTACT"))}
    options = {"cwd": folder, "env": clean}
    run(*pip, "install", "--no-index", "--quiet", wheel.resolve(), **options)
    checked = subprocess.run([*pip, "check"], capture_output=True, text=True, **options).stdout
    if "fastact" in checked:
        fail(f"pip check: {checked}")
    print(run(python, "-W", "ignore", "-c", TRY, **options), end="")

    prefix = run(python, "-c", PREFIX, **options).strip()
    tools = clean | {"PATH": f"{environment.resolve() / 'bin'}{os.pathsep}{clean['PATH']}"}
    run(
        "cmake", "-S", ROOT / "cpp_tests" / "consumers", "-B", folder / "consumers",
        f"-DPython3_EXECUTABLE={python}", f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O0", cwd=folder, env=tools,
    )  # fmt: skip
    build = ("cmake", "--build", folder / "consumers", "-j", os.cpu_count(), "--target", *PROGRAMS)
    run(*build, cwd=folder, env=tools)
    for program in PROGRAMS:
        run(folder / "consumers" / program, **options)
    print(run(python, "-m", "fastact", "verify", "--device", "cpu", **options).splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path)
    parser.add_argument("environments", nargs="+", type=Path)
    options = parser.parse_args()
    wheels = sorted(options.dist.glob("*.whl"))
    if not wheels:
        fail(f"expected wheels in {options.dist}, but found none: run make wheel")
    for wheel in wheels:
        with tempfile.TemporaryDirectory() as folder:
            inspect(wheel, Path(folder))
        for environment in options.environments:
            with tempfile.TemporaryDirectory() as folder:
                install(wheel, environment.absolute(), Path(folder))


if __name__ == "__main__":
    main()

"""Trains two networks in Python, and runs them in C++ with FastAct.

    python demo.py --prefix PREFIX [--build-dir DIR] [--device auto|cpu|cuda]

PREFIX is where FastAct is installed. train.py trains and saves the networks, CMake builds app/,
which uses find_package(FastAct), and the app runs the held-out digits and prints a table.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from train import positive, why_not_loaded

HERE = Path(__file__).resolve().parent


class Failure(Exception):
    """An error message for the user, in one sentence."""


def find_library(prefix: Path) -> Path:
    library = prefix / "lib" / "libfastact.so"
    if not library.is_file():
        raise Failure(f"FastAct is not installed in {prefix}: {library} does not exist.")
    return library


def choose_devices(wanted: str, library: Path) -> list[str]:
    """Returns the devices to run on. Prints the reason if a GPU exists but is not used."""
    try:
        torch.ops.load_library(library)
    except (OSError, RuntimeError) as error:
        raise Failure(f"FastAct {why_not_loaded(error)}.") from None
    gpu = torch.cuda.is_available()
    built = torch._C._dispatch_has_kernel_for_dispatch_key("fastact::selu", "CUDA")
    if wanted == "cuda":
        if not gpu:
            raise Failure("--device cuda: PyTorch finds no CUDA device on this machine.")
        if not built:
            raise Failure(f"--device cuda: {library} was built without CUDA.")
        return ["cuda"]
    if wanted == "cpu" or not gpu:
        return ["cpu"]
    if not built:
        print(f"{library} was built without CUDA: running on the CPU only.")
        return ["cpu"]
    print(f"Running on the CPU and on {torch.cuda.get_device_name()}.")
    return ["cpu", "cuda"]


def run(command: list[str | Path], log: Path | None = None) -> None:
    """Runs a command. Its output goes to the terminal or to `log`, which is shown on failure."""
    # The cmake and ninja of this Python's virtual environment have precedence.
    search = str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", "")
    environment = {**os.environ, "PATH": search}
    words = [str(word) for word in command]
    try:
        if log is None:
            code = subprocess.run(words, env=environment).returncode
        else:
            with log.open("w") as output:
                code = subprocess.run(
                    words, env=environment, stdout=output, stderr=subprocess.STDOUT
                ).returncode
    except FileNotFoundError:
        raise Failure(f"{words[0]} is not on PATH.") from None
    if code != 0:
        if log is not None:
            sys.stderr.write(log.read_text())
        raise Failure(f"this step failed with exit code {code}: {' '.join(words)}")


def build_app(prefix: Path, build: Path) -> Path:
    """Builds the C++ app with the installed FastAct, and returns the executable."""
    build.mkdir(parents=True, exist_ok=True)
    configure = [
        *("cmake", "--fresh", "-S", HERE / "app", "-B", build),  # forgets an earlier PREFIX
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DPython3_EXECUTABLE={sys.executable}",  # FastAct takes LibTorch from this Python
    ]
    run(configure, log=build / "configure.log")
    run(["cmake", "--build", build], log=build / "build.log")
    return build / "digits"


def demo(options: argparse.Namespace) -> None:
    library = find_library(options.prefix)
    devices = choose_devices(options.device, library)
    archives = options.build_dir / "archives"

    print("[1/3] Training in Python", flush=True)
    flags = [word for device in devices for word in ("--device", device)]
    for name in ("batch", "epochs", "threads"):
        flags += [f"--{name}", str(getattr(options, name))]
    run([sys.executable, HERE / "train.py", "--library", library, "--out", archives, *flags])

    print("[2/3] Building the C++ app against", options.prefix, flush=True)
    start = time.monotonic()
    app = build_app(options.prefix, options.build_dir / "app")
    print(f"built {app} in {time.monotonic() - start:.0f} s")

    print("[3/3] Running the networks in C++", flush=True)
    models = ["--model", archives / "selu.pt", "--model", archives / "relu.pt"]
    flags = [word for device in devices for word in ("--device", device)]
    run([app, *models, *flags, "--override"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", type=Path, required=True, help="where FastAct is installed")
    parser.add_argument("--build-dir", type=Path, default=Path("build/digits"))
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--batch", type=positive, default=64, help="digits in one forward call")
    parser.add_argument("--epochs", type=positive, default=30)
    # Networks this small gain nothing from more threads, and are slower on a busy machine.
    parser.add_argument("--threads", type=positive, default=1, help="CPU threads, also of the app")
    options = parser.parse_args()
    options.prefix = options.prefix.resolve()
    options.build_dir = options.build_dir.resolve()
    try:
        demo(options)
    except Failure as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

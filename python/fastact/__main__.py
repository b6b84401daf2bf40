"""Shows, checks and times FastAct on this machine, and optimizes TorchScript archives.

    python -m fastact info      shows versions, devices, instruction sets and the GPU's arithmetic
    python -m fastact verify    compares results with the recorded digests, in about a minute
    python -m fastact bench     times FastAct, PyTorch and a memory copy, in about a minute
    python -m fastact optimize in.pt out.pt --shape 1,3,224,224
                                fuses operators in a TorchScript archive

Exit codes: 0 for success; 1 if bits differ or an archive cannot be optimized; 2 for a wrong command
line; 3 if a command could not finish, for example because of a full disk; 130 after an interrupt.
"""

import argparse
import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator

import torch

from fastact import _info
from fastact._errors import first_line


def _positive(kind: type) -> type:
    def parse(text: str):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"expected more than 0, but got {text}")
        return value

    parse.__name__ = kind.__name__  # for argparse's own message
    return parse


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fastact",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="shows versions, devices and instruction sets")
    verify = commands.add_parser("verify", help="compares results with the recorded digests")
    verify.add_argument(
        "--device", choices=("cpu", "cuda"), help="checks only this device (default: all available)"
    )
    verify.add_argument(
        "--workers", type=_positive(int), metavar="N", help="CPU cores to use (default: all)"
    )
    bench = commands.add_parser("bench", help="times FastAct, PyTorch and a memory copy")
    bench.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda, if there is a GPU")
    bench.add_argument(
        "--seconds", type=_positive(float), default=60.0, help="total time (default: %(default)g)"
    )
    optimize = commands.add_parser("optimize", help="fuses operators in a TorchScript archive")
    optimize.add_argument("input", metavar="IN", help="an archive written by torch.jit.save")
    optimize.add_argument("output", metavar="OUT", help="the archive to write")
    sample = optimize.add_mutually_exclusive_group()
    sample.add_argument(
        "--sample",
        metavar="FILE",
        help="the arguments of forward, a tensor or a tuple, written by torch.save",
    )
    sample.add_argument(
        "--shape",
        type=_shape,
        action="append",
        help="the shape of a random float32 argument, such as 1,3,224,224; repeatable",
    )
    return parser


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected sizes, but got {text}") from None


class Unusable(Exception):
    """An argument names something unusable. The message is the sentence to show."""


def _sample(options: argparse.Namespace) -> list[torch.Tensor]:
    if not options.sample:
        return [torch.randn(shape) for shape in options.shape or ()]
    expected = (
        f"fastact optimize: expected {options.sample} to be a tensor or a tuple of tensors, as "
        "torch.save wrote it"
    )
    try:
        found = torch.load(options.sample)
    except Exception as error:  # a damaged file can raise any error
        raise Unusable(f"{expected}, but got: {first_line(error)}") from error
    tensors = list(found) if isinstance(found, (list, tuple)) else [found]
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise Unusable(f"{expected}, but got {type(tensor).__name__}")
    return tensors


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[str]:
    """Yields the name of a temporary file, which replaces the file at `path` when the block ends.
    If the block raises, the old file stays. Yields `path` itself if that is not a regular file."""
    path = os.path.realpath(path)
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        yield path
        return
    unfinished = f"{path}.{os.getpid()}.part"
    try:
        yield unfinished
        if os.path.exists(path):
            shutil.copymode(path, unfinished)
        os.replace(unfinished, path)
    finally:
        with contextlib.suppress(OSError):
            os.remove(unfinished)


def _optimize(options: argparse.Namespace) -> int:
    try:
        with open(options.input, "rb"):  # Python's error message names the problem
            pass
        sample = _sample(options)
        with _replacing(options.output) as output:
            report = torch.ops.fastact.optimize_archive(options.input, output, sample)
    except Unusable as error:
        _say(str(error))
        return 1
    except (OSError, RuntimeError, UnicodeError) as error:
        _say(f"fastact: expected to optimize {options.input}, but got: {first_line(error)}")
        return 1
    print(report, end="")
    return 0


def _run(options: argparse.Namespace) -> int:
    if options.command == "optimize":
        return _optimize(options)
    if options.command == "info":
        print(_info.text())
        return 0
    devices = ["cpu", "cuda"] if _info.gpus() else ["cpu"]
    if options.command == "verify":
        from fastact import _verify

        every = [options.device] if options.device else devices
        return _verify.run(every, options.workers or len(os.sched_getaffinity(0)))
    from fastact import _bench

    return _bench.run(options.device or devices[-1], options.seconds)


def _say(sentence: str) -> None:
    text = sentence.encode(errors="backslashreplace").decode()  # a file name may be invalid text
    with contextlib.suppress(OSError):  # such as a full disk; the exit code also shows the error
        if sys.stderr is not None:
            print(text, file=sys.stderr)


def _give_up_writing() -> None:
    """Discards output that standard output and error do not accept. Python would otherwise write it
    again at exit, and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main(arguments: list[str] | None = None) -> int:
    name = "fastact"
    try:
        if sys.stdout is None:
            raise Unusable("fastact: expected a standard output, but it is closed")
        with contextlib.suppress(AttributeError):  # if the program has replaced it
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            parser = command_line()
            options = parser.parse_args(arguments)
            if getattr(options, "device", None) == "cuda" and not _info.gpus():
                parser.error("expected a GPU that torch and this library can use, but found none")
            name = f"fastact {options.command}"
            return _run(options)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except Exception as error:  # any type, from inside Python or torch
        line = first_line(error)
        is_ours = line.startswith("fastact")
        _say(line if is_ours else f"{name}: expected to end its work, but got: {line}")
        return 3
    finally:
        _give_up_writing()


if __name__ == "__main__":
    sys.exit(main())

"""What FastAct is, computes and how fast, on this machine.

    python -m fastact info      versions, devices, instruction sets, a GPU's check of its arithmetic
    python -m fastact verify    whether this machine computes the recorded bits, in about a minute
    python -m fastact bench     FastAct beside PyTorch and a copy, in about a minute
    python -m fastact optimize in.pt out.pt --shape 1,3,224,224
                                fused operators in a TorchScript archive

Exit code: 0; 1 if bits differ or an archive cannot be optimized; 2 for a wrong command line; 130
after an interrupt.
"""

import argparse
import sys

from fastact import _info


def _positive(kind: type) -> type:
    def parse(text: str):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"expected more than 0, but got {text}")
        return value

    parse.__name__ = kind.__name__  # for argparse's own message
    return parse


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fastact",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, devices, instruction sets")
    verify = commands.add_parser("verify", help="compare bits with the recorded ones")
    verify.add_argument(
        "--device", choices=("cpu", "cuda"), help="one of them (default: all there are)"
    )
    verify.add_argument(
        "--workers", type=_positive(int), metavar="N", help="CPU cores to use (default: all)"
    )
    bench = commands.add_parser("bench", help="times beside PyTorch and a copy")
    bench.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda, if there is a GPU")
    bench.add_argument(
        "--seconds", type=_positive(float), default=60.0, help="in all (default: %(default)g)"
    )
    optimize = commands.add_parser("optimize", help="fused operators in a TorchScript archive")
    optimize.add_argument("input", metavar="IN", help="an archive of torch.jit.save's")
    optimize.add_argument("output", metavar="OUT", help="the archive to write")
    sample = optimize.add_mutually_exclusive_group()
    sample.add_argument(
        "--sample", metavar="FILE", help="forward's arguments: a tensor or a tuple, by torch.save"
    )
    sample.add_argument(
        "--shape",
        type=_shape,
        action="append",
        help="of a random float32 argument, such as 1,3,224,224; again for the next argument",
    )
    options = parser.parse_args(arguments)
    if getattr(options, "device", None) == "cuda" and not _info.gpus():
        parser.error("expected a GPU that torch and this library can use, but found none")
    return options


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected sizes, but got {text}") from None


def _optimize(options: argparse.Namespace) -> int:
    import torch

    try:
        if options.sample:
            sample = torch.load(options.sample)
        else:
            sample = tuple(torch.randn(shape) for shape in options.shape or ())
        sample = [sample] if isinstance(sample, torch.Tensor) else list(sample)
        report = torch.ops.fastact.optimize_archive(options.input, options.output, sample)
    except (OSError, RuntimeError) as error:
        print(f"fastact: expected to optimize {options.input}, but got: {error}", file=sys.stderr)
        return 1
    print(report, end="")
    return 0


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        if options.command == "info":
            print(_info.text())
            return 0
        if options.command == "verify":
            from fastact import _verify

            every = ["cpu", "cuda"] if _info.gpus() else ["cpu"]
            devices = [options.device] if options.device else every
            return _verify.run(devices, options.workers or _verify.default_workers())
        if options.command == "optimize":
            return _optimize(options)
        from fastact import _bench

        return _bench.run(options.device or ("cuda" if _info.gpus() else "cpu"), options.seconds)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

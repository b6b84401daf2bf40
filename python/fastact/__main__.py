"""What FastAct is, computes and how fast, on this machine.

    python -m fastact info      versions, devices, instruction sets, a GPU's check of its arithmetic
    python -m fastact verify    whether this machine computes the recorded bits, in about a minute
    python -m fastact bench     FastAct beside PyTorch and a copy, in about a minute

Exit code: 0; 1 if bits differ; 2 for a wrong command line; 130 after an interrupt.
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
    options = parser.parse_args(arguments)
    if getattr(options, "device", None) == "cuda" and not _info.gpus():
        parser.error("expected a GPU that torch and this library can use, but found none")
    return options


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
        from fastact import _bench

        return _bench.run(options.device or ("cuda" if _info.gpus() else "cpu"), options.seconds)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

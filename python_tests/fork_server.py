"""Runs Python programs in forks of a process that has imported torch, because the import takes
seconds of CPU time.

This is the program of that process. Each line of its standard input is a command in JSON. The
answer consists of two lines: the fork's process ID, and its exit code. A fork behaves like a new
interpreter, from the first line of its program to its finalization.
"""

import gc
import json
import os
import runpy
import sys
import types
import warnings

import torch  # noqa: F401


def next_command():
    """Forks for each command. Returns only in the forks."""
    replies = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            return json.loads(line)
        print(child, file=replies, flush=True)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(code, file=replies, flush=True)
    sys.exit()


def become(command):
    """Takes over the command's streams, environment, folder and import path."""
    for number, file in enumerate((os.devnull, command["stdout"], command["stderr"])):
        os.dup2(os.open(file, os.O_RDWR), number)
    os.environ.clear()
    os.environ.update(command["environment"])
    os.chdir(command["cwd"])
    sys.path[:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def execute(*arguments):
    """Runs [-W action] (-c code | -m module | file) with arguments, as the command `python`."""
    option, *others = arguments
    if option == "-W":
        warnings.simplefilter(others[0])
        execute(*others[1:])
    elif option == "-c":
        sys.path.insert(0, "")
        code, *sys.argv[1:] = others
        sys.argv[0] = option
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), main.__dict__)
    elif option == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv[:] = others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(option)))
        sys.argv[:] = arguments
        runpy.run_path(option, run_name="__main__")


if __name__ == "__main__":
    gc.freeze()  # no collection in a fork visits, and so copies, the objects of torch
    command = next_command()
    become(command)
    sys.orig_argv = [sys.executable, *command["arguments"]]  # with which a program restarts itself
    execute(*command["arguments"])

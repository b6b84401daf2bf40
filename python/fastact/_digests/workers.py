"""Pieces of work shared by processes: torch's own threads would meet after each small operation,
and Python's would wait for one another's."""

import contextlib
import ctypes
import multiprocessing
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

_function = None


def keep_memory():
    """Tells the C library not to give freed memory back: tensors come and go at a high rate, and
    fresh pages cost more than what is computed on them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # not glibc
        return
    trim_threshold, mmap_threshold = -1, -3  # as in malloc.h
    mallopt(mmap_threshold, 1 << 30)
    mallopt(trim_threshold, (1 << 31) - 1)


@contextlib.contextmanager
def _without_interrupts():
    """Interrupts wait for the end of the block, so that no process is left over that is just being
    made. Processes that are made here are never interrupted: the parent is, and ends them."""
    if threading.current_thread() is not threading.main_thread():  # others are not interrupted
        yield
        return
    waiting = []
    # Not a mask: a signal that this thread does not take, another one does.
    before = signal.signal(signal.SIGINT, lambda *_: waiting.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            signal.raise_signal(signal.SIGINT)


def _call(item):
    return _function(item)


def each(function, items, workers, chunk=1):
    """function(item) for every item, in their order; items go to the processes by chunks.

    RuntimeError if a process is killed, as for the memory that it takes."""
    global _function
    if workers == 1:
        keep_memory()
        yield from map(function, items)
        return
    _function = function  # inherited by fork: it may be a closure
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, context, initializer=keep_memory) as pool:
        try:
            with _without_interrupts():
                results = pool.map(_call, items, chunksize=chunk)
            yield from results
        except BrokenProcessPool:
            raise RuntimeError(
                f"fastact: expected {workers} worker processes to end their work, but one was "
                "killed: use fewer, as each takes memory"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def each_in_threads(function, items, workers):
    """The same by threads, which can share a GPU."""
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield from pool.map(function, items)
        finally:
            pool.shutdown(cancel_futures=True)

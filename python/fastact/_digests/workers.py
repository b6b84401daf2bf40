"""Pieces of work shared by processes: torch's own threads would meet after each small operation,
and Python's would wait for one another's."""

import ctypes
import multiprocessing
import signal
from concurrent.futures import ThreadPoolExecutor

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


def _start():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and ends us
    keep_memory()


def _call(item):
    return _function(item)


def each(function, items, workers, chunk=1):
    """function(item) for every item, in their order; items go to the processes by chunks."""
    global _function
    if workers == 1:
        keep_memory()
        yield from map(function, items)
        return
    _function = function  # inherited by fork: it may be a closure
    with multiprocessing.get_context("fork").Pool(workers, initializer=_start) as pool:
        yield from pool.imap(_call, items, chunk)


def each_in_threads(function, items, workers):
    """The same by threads, which can share a GPU."""
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield from pool.map(function, items)
        finally:
            pool.shutdown(cancel_futures=True)

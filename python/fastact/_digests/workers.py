"""Distributes work over processes. torch's threads would synchronize after each small operation,
and Python's threads would wait for each other."""

import contextlib
import ctypes
import multiprocessing
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

_function = None


def keep_memory():
    """Tells the C library to keep freed memory: tensors are allocated at a high rate, and new pages
    cost more time than computing on them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # not glibc
        return
    trim_threshold, mmap_threshold = -1, -3  # as in malloc.h
    mallopt(mmap_threshold, 1 << 30)
    mallopt(trim_threshold, (1 << 31) - 1)


@contextlib.contextmanager
def _without_interrupts():
    """Delays interrupts until the end of the block, so that an interrupt leaves no half-started
    process behind. Processes started in the block ignore interrupts: the parent ends them."""
    if threading.current_thread() is not threading.main_thread():  # only this one gets interrupts
        yield
        return
    waiting = []
    # Not a signal mask: another thread would receive the signal.
    before = signal.signal(signal.SIGINT, lambda *_: waiting.append(True))
    try:
        yield
    finally:
        if before is not None:  # a handler that Python has not installed cannot be restored
            signal.signal(signal.SIGINT, before)
        if waiting:
            signal.raise_signal(signal.SIGINT)


def _call(item):
    return _function(item)


def each(function, items, workers, chunk=1):
    """Yields function(item) for every item, in order. Processes receive the items in chunks.

    Raises a RuntimeError if a process is killed, for example because memory is short."""
    global _function
    if workers == 1 or len(items) == 1:
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
                f"fastact: expected {workers} worker processes to finish, but one was killed: use "
                "fewer, because each takes memory"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)

"""Changes torch's own classes and modules, either completely or not at all."""

import contextlib
from collections.abc import Iterator
from unittest import mock

#: An attribute of a class or a module, and its new value.
Change = tuple[object, str, object]


class Changes(contextlib.ExitStack):
    """The changes of a block."""

    def make(self, change: Change) -> None:
        self.enter_context(mock.patch.object(*change))

    def will_change(self, mapping: dict) -> None:
        """Records a dictionary that another function is about to change."""
        self.enter_context(mock.patch.dict(mapping))


@contextlib.contextmanager
def undone_on_error() -> Iterator[Changes]:
    """Undoes all changes of the block if the block raises an error."""
    with Changes() as changes:
        yield changes
        changes.pop_all()

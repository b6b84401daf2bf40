"""Changes torch's own classes and modules, either completely or not at all."""

import contextlib
from collections.abc import MutableMapping

#: An attribute of a class or a module, and its new value.
Change = tuple[object, str, object]

_ABSENT = object()


def _put_back(owner: object, name: str, before: object) -> None:
    if before is not _ABSENT:
        setattr(owner, name, before)
    elif name in vars(owner):
        delattr(owner, name)


def _put_entry_back(mapping: MutableMapping, key: object, before: object) -> None:
    if before is not _ABSENT:
        mapping[key] = before
    else:
        mapping.pop(key, None)


class Changes(contextlib.ExitStack):
    """A context manager that undoes all its changes if the block raises an error."""

    def __exit__(self, kind, *details):
        if kind is None:
            self.pop_all()
        return super().__exit__(kind, *details)

    def will_set(self, mapping: MutableMapping, key: object) -> None:
        """Records an entry that another function is about to set, so that it can be restored."""
        self.callback(_put_entry_back, mapping, key, mapping.get(key, _ABSENT))

    def make(self, change: Change) -> None:
        owner, name, value = change
        # Not getattr(), which would bind static methods and find inherited attributes.
        self.callback(_put_back, owner, name, vars(owner).get(name, _ABSENT))
        setattr(owner, name, value)

"""Changes of torch's own classes and modules that are made together or not at all."""

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
    """A block that makes changes. If it raises, what it has changed is put back."""

    def __exit__(self, kind, *details):
        if kind is None:
            self.pop_all()
        return super().__exit__(kind, *details)

    def will_set(self, mapping: MutableMapping, key: object) -> None:
        """Remembers an entry that somebody else's function is about to set."""
        self.callback(_put_entry_back, mapping, key, mapping.get(key, _ABSENT))

    def make(self, change: Change) -> None:
        owner, name, value = change
        # vars(), as getattr() would bind a static method and find what is inherited.
        self.callback(_put_back, owner, name, vars(owner).get(name, _ABSENT))
        setattr(owner, name, value)

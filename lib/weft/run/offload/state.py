"""The state of a store's folder: what was flushed last, and how the next one replaces it."""

from contextlib import suppress
from copy import deepcopy
from typing import Any

from weft.run.offload.direct_io import Folder
from weft.run.offload.faults import fault
from weft.run.offload.manifest import FILE, Content, Entry, file_name, packed, strays, unpacked


class State:
    """The tensors and notes of a folder as they were flushed, and new files beside theirs.

    A file is never changed and its name never used again. The list of files is replaced by one
    rename, so there always is a state, and it is the old one or the new one.
    """

    def __init__(self, folder: Folder):
        self._folder, self.path = folder, folder.path / FILE
        data = folder.load(FILE)
        self.kept = Content({}, {}, 0) if data is None else unpacked(data, self.path)
        self._begun: tuple[bytes, Content] | None = None  # a commit, until it is known to be there
        self._serial = self.kept.serial
        self.remove(self.strays())

    def file(self, name: str) -> str:
        """What the next file for a tensor is called."""
        self._serial += 1
        return file_name(self._serial, name)

    def commit(self, tensors: dict[str, Entry], notes: dict[str, Any]) -> list[str]:
        """Make these the state; the files that it does not need, for `remove`."""
        if not isinstance(notes, dict):
            raise ValueError(f"notes is a {type(notes).__name__}, must be a dict")
        content = Content(tensors, deepcopy(notes), self._serial)
        try:
            data = packed(content)
        except (TypeError, ValueError) as error:
            raise ValueError(f"notes must be what JSON can hold: {error}") from None
        try:
            self._settle()
            self._begun = data, content
            self._folder.replace(FILE, data)
            self.kept, self._begun = content, None  # what a new store would find, from here on
            self._folder.sync()
        except OSError as error:
            raise fault(error, self.path, "writing the list of tensors") from error
        return self.strays()

    def _settle(self) -> None:
        """After a commit that was broken off: the list that is there is the state, old or new."""
        if self._begun is not None:
            data, content = self._begun
            if self._folder.load(FILE) == data:
                self.kept = content
            self._begun = None

    def strays(self) -> list[str]:
        """Files of a store that lie here and that the state does not need; none if in doubt."""
        with suppress(OSError):
            self._settle()
            return strays(self._folder.names(), self.kept.tensors)
        return []

    def remove(self, names: list[str]) -> None:
        """Remove files; what cannot be removed now is when the folder is opened again."""
        for name in names:
            self._folder.remove(name)

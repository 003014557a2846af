"""What goes wrong, in the words of the program."""

from __future__ import annotations

from typing import Sequence, Tuple


class Error(OSError):
    """The program refused or failed; the text is its sentence, with the store, key or path in it."""


class CommitConflict(Error):
    """Somebody else has changed keys that a commit would change; nothing was written.

    `keys` has each of these keys, and how it was changed.
    """

    def __init__(self, text: str, keys: Sequence[Tuple[str, str]] = ()) -> None:
        super().__init__(text)
        self.keys = list(keys)

"""What random operations on a --cow mount are drawn from, and how both the mount and a plain directory are told alike.

A draw that has no meaning in the state that is there is drawn again.
"""

import errno
import os
import shutil
from contextlib import contextmanager

import numpy as np

import both_views
from both_views import check_array
from both_views import check_node
from both_views import is_within


class Again(Exception):
    """What was drawn has no meaning here."""


def attempt(act, *arguments):
    """Returns the name of the error that something ends with; nothing if it is done."""
    try:
        act(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return None


def write_whole(path, bytes_, beside):
    """Replaces a file: in place, or by one beside it that gets its name."""
    if not beside:
        path.write_bytes(bytes_)
        return
    new = path.with_name(path.name + ".tmp")
    new.write_bytes(bytes_)
    os.replace(new, path)


def write_at(path, bytes_, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(bytes_)


def append(path, bytes_):
    with open(path, "ab") as file:
        file.write(bytes_[: len(bytes_) // 2])
        file.flush()
        file.write(bytes_[len(bytes_) // 2 :])


def write_mapped(path, bytes_, offset):
    mapped = np.memmap(path, mode="r+")
    part = mapped[offset : offset + len(bytes_)]
    part[:] = np.frombuffer(bytes_[: len(part)], "u1")
    mapped.flush()


@contextmanager
def opened(path, flags=os.O_RDWR):
    file = os.open(path, flags)
    try:
        yield file
    finally:
        os.close(file)


class Drawing:
    """What is drawn, the mount, the model, and what both are told alike."""

    def __init__(self, form, folder, random):
        self.form, self.random = form, random
        self.done = []
        # Chunks cut at the edge that were written by the files view, by the paths of their arrays.
        self.cut = {}
        self.model, self.pristine = folder / "some-model.zarr", folder / "pristine"
        self.lower, self.upper = folder / "some.zarr", folder / "upper"
        form.make(self.pristine)
        for place in (self.model, self.lower):
            shutil.copytree(self.pristine, place)
        self.subject = both_views.Subject(self.lower, self.upper, "store")

    def note(self, *words):
        self.done.append(f"{len(self.done) + 1}: " + " ".join(map(str, words)))

    def pick(self, values):
        values = list(values)
        if not values:
            raise Again
        return self.random.choice(values)

    def chance(self, part):
        return self.random.random() < part

    def roots(self):
        return self.subject.store, self.model

    def array(self):
        """Draws an array that has elements; returns its path, and the model's."""
        path = self.pick(self.form.arrays(self.model))
        array = self.form.open(self.model, path)
        if not all(array.shape):
            raise Again
        return path, array

    def both(self, act, *arguments):
        """Does to both places what `act` does to one; returns the error that both give."""
        found, wanted = (attempt(act, root, *arguments) for root in self.roots())
        assert found == wanted, f"the mount says {found}, the plain directory {wanted}"
        return wanted

    def check(self, path):
        """Compares an array.

        Nobody says what a chunk holds beyond the edge of its array. After a decoded file was written it is what was
        there or the fill value, as the kernel cuts writes into requests; from then on it is what the mount has.
        """
        check_array(self.subject, self.model, self.form, path, self.chance(0.5))
        for key in self.cut.pop(path, ()):
            shutil.copyfile(self.subject.store / key, self.model / key)

    def check_below(self, path):
        """Compares some of the nodes at a path and below."""
        nodes = self.form.nodes(self.model)
        below = [node for node in nodes if is_within(node, path)]
        for node in self.random.sample(below, min(2, len(below))):
            check = check_array if nodes[node] == "array" else check_node
            check(self.subject, self.model, self.form, node)

    def attributes(self):
        values = [1, -2.5, "text \u00e4", [1, [2]], {"x": None}, True]
        names = self.random.sample(["unit", "name", "of", "\u00e9"], self.random.randrange(4))
        return {name: self.random.choice(values) for name in names}

    def shape(self, array):
        """Draws another shape for an array: longer or shorter somewhere."""
        if not array.shape:
            raise Again
        most = [length + 2 * chunk for length, chunk in zip(array.shape, array.chunks)]
        shape = [self.random.randint(1, min(n, 40 if len(most) > 1 else 5000)) for n in most]
        if self.chance(0.02):
            shape[0] = 0
        if tuple(shape) == array.shape:
            raise Again
        return tuple(shape)

"""Random operations through one view while a file is open in the other."""

import errno
import json
import os
from contextlib import suppress

import numpy as np

from both_views import check_place
from decoded_operations import DecodedNodes
from plain_store import boxes
from random_drawing import Again
from random_drawing import attempt
from random_drawing import opened


class Held(DecodedNodes):
    """One view changes while a file is open in the other."""

    def hold_decoded(self):
        """Writes to a decoded file, changes something in the store view, and writes once more."""
        path, array = self.array()
        held = self.file_of(path, array)
        change, wanted = self.random.choice(
            [
                (self.meanwhile_chunk, [None]),
                (self.meanwhile_file, [None]),
                (self.meanwhile_attributes, [None]),
                (self.meanwhile_shape, ["ESTALE"]),
                (self.meanwhile_away, ["ENOENT", "ESTALE"]),
            ]
        )
        draw = self.shape(array) if wanted == ["ESTALE"] else self.chunk_of(path, array)
        self.note("hold decoded", path)
        with opened(held[0]) as file:
            assert self.write_range(file, path, held) is None
            if self.chance(0.4) or wanted == ["ESTALE"]:
                self.check(path)
            change(path, draw)
            error = self.write_range(file, path, held)
            assert error in wanted, f"{error}, expected {wanted}"
        if "ENOENT" not in wanted:
            self.check(path)

    def meanwhile_chunk(self, path, draw):
        index, bytes_ = draw
        key = self.form.open(self.model, path).key(index)
        self.note("meanwhile: no chunk is written", index)
        place = self.subject.store / key
        assert attempt(place.write_bytes, bytes_) in ("EBUSY", "ENOENT")
        assert not place.exists() or place.read_bytes()

    def meanwhile_file(self, path, draw):
        with suppress(Again):
            self.write_file()

    def meanwhile_attributes(self, path, draw):
        self.write_stored_attributes(path)

    def meanwhile_shape(self, path, shape):
        self.store_shape(path, shape)

    def meanwhile_away(self, path, draw):
        new = self.away(path)
        self.note("meanwhile: away to", new)
        for root in self.roots():
            self.form.move(root, path, new)
        self.cut[new] = self.moved_keys(path, new)
        self.check(new)

    def moved_keys(self, path, new):
        """Returns where the chunks that are cut are after a rename."""
        keys = self.cut.pop(path, ())
        array = "/" + path + "/"
        return {f"/{key}".replace(array, f"/{new}/", 1)[1:] for key in keys}

    def away(self, path):
        new = os.path.join(os.path.dirname(path), f"moved{len(self.done)}")
        assert not (self.model / new).exists()
        return new

    def hold_stored(self):
        """Writes a chunk's file, which keeps the decoded files of the array from being written until it is closed."""
        path, array = self.array()
        if not array.shape:
            raise Again
        index, bytes_ = self.chunk_of(path, array)
        other, box = self.pick(boxes(array.shape, array.chunks))
        if other == index:
            raise Again
        key = array.key(index)
        self.note("hold stored", key, "and write chunk", other)
        (self.subject.store / key).parent.mkdir(parents=True, exist_ok=True)
        (self.model / key).parent.mkdir(parents=True, exist_ok=True)
        place, size = self.subject.decoded(path, "raw"), array.dtype.itemsize
        start = int(np.ravel_multi_index([part.start for part in box], array.shape)) * size
        row = self.random.randbytes((box[-1].stop - box[-1].start) * size)
        with opened(self.subject.store / key, os.O_RDWR | os.O_CREAT) as file:
            os.pwrite(file, bytes_, 0)
            os.ftruncate(file, len(bytes_))
            try:
                with opened(place):
                    raise AssertionError(f"{place} opens for writing beside {key}")
            except OSError as error:
                assert error.errno == errno.EBUSY, error
            check_place(self.subject.store / key, self.subject.store / key)
        (self.model / key).write_bytes(bytes_)
        with opened(place) as decoded:
            os.pwrite(decoded, row, start)
            self.assign(path, [(start, row)])
        self.check(path)

    def hold_attributes(self):
        """Writes attributes.json, which is closed after the store view changed the array's shape."""
        path, array = self.array()
        attributes, shape = self.attributes(), self.shape(array)
        self.note("hold attributes", path, attributes)
        with opened(self.subject.files / path / "attributes.json", os.O_WRONLY | os.O_TRUNC) as file:
            os.write(file, json.dumps(attributes).encode())
            self.store_shape(path, shape)
            self.check(path)
        if attributes or self.form.attributes(self.model, path):
            self.form.set_attributes(self.model, path, attributes)
        self.check(path)

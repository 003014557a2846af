"""Random operations over both views of a --cow mount, each done to a plain directory as well; the two must not differ.

After each operation what it touched is compared, after each hundred everything; then the store is mounted again: after
an unmount, a commit, a discard, or the death of the daemon.

ZARRFS_TEST_SEED (1) says which operations, ZARRFS_TEST_OPERATIONS (300) how many for each dialect: 10000 is the whole size.
"""

import os
import random

import pytest
import zarr

import both_views
from held_operations import Held
from plain_draft import Draft
from plain_store import ZarrPython
from random_drawing import Again

SEED = int(os.environ.get("ZARRFS_TEST_SEED", "1"))
COUNT = int(os.environ.get("ZARRFS_TEST_OPERATIONS", "300"))

FORMS = {form.name: form for form in [ZarrPython(2), ZarrPython(3), Draft(2020), Draft(2022)]}

# How many of the last operations a failure shows.
SHOWN = 25


class Operations(Held):
    """All operations, how often each is drawn, and what is done after a hundred of them."""

    WEIGHTS = {
        "write_file": 8,
        "truncate_file": 3,
        "rename_file": 6,
        "link_file": 3,
        "unlink_file": 3,
        "make_folder": 4,
        "remove_folder": 2,
        "remove_tree": 1,
        "rename_stored_node": 2,
        "copy_pristine": 2,
        "write_chunk": 5,
        "patch_chunk": 4,
        "remove_chunk": 3,
        "rename_chunk": 3,
        "write_by_library": 5,
        "resize_by_library": 2,
        "write_stored_shape": 2,
        "write_stored_attributes": 3,
        "write_decoded": 14,
        "write_mapped": 7,
        "be_refused": 2,
        "write_attributes": 5,
        "hold_decoded": 6,
        "hold_stored": 3,
        "hold_attributes": 2,
    }

    def step(self, number):
        """Does one operation."""
        names, weights = list(self.WEIGHTS), list(self.WEIGHTS.values())
        while True:
            name = self.random.choices(names, weights)[0]
            try:
                getattr(self, name)()
                return
            except Again:
                pass

    def round(self, number):
        """Compares everything, and mounts again."""
        both_views.check_all(self.subject, self.model, self.form)
        what = self.random.choice(["remount", "kill", "commit", "discard", "discard all", "dead commit"])
        if number == 1:
            what = "kill"
        self.note("---", what)
        getattr(self, what.replace(" ", "_"))()
        both_views.check_all(self.subject, self.model, self.form)

    def mount(self):
        self.subject.mount(self.random.choice(both_views.WAYS))

    def remount(self):
        self.subject.unmount()
        self.mount()

    def kill(self):
        os.sync()
        self.subject.kill()
        self.mount()

    def commit(self):
        self.subject.commit()
        self.check_committed()
        both_views.check_all(self.subject, self.model, self.form)
        self.remount()

    def dead_commit(self):
        """Commits what is not mounted."""
        self.subject.unmount()
        both_views.commit(self.upper)
        self.check_committed()
        self.mount()

    def check_committed(self):
        found, wanted = (both_views.keys(root, self.form)[0] for root in (self.lower, self.model))
        assert found == wanted, found.keys() ^ wanted.keys()

    def discard(self):
        """Discards one name of the root; documents of a draft and their chunks together."""
        names = set(os.listdir(self.model)) | set(os.listdir(self.lower))
        path = self.pick(sorted(names))
        paths = ["data", "meta"] if path in ("data", "meta") else [path]
        for path in paths:
            if self.subject.discard(path):
                self.note("discarded", path)
                both_views.restore(self.model, self.lower, path)
        both_views.check_all(self.subject, self.model, self.form)
        self.remount()

    def discard_all(self):
        self.subject.discard()
        for path in sorted(set(os.listdir(self.model)) | set(os.listdir(self.lower))):
            both_views.restore(self.model, self.lower, path)
        both_views.check_all(self.subject, self.model, self.form)
        self.remount()

    def end(self):
        """Takes the mount away, also when somebody still has files of it open."""
        self.subject.kill()


def run(operations, count):
    for number in range(1, count + 1):
        operations.step(number)
        if number % 100 == 0 or number == count:
            operations.round(number // 100)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_both_views_do_what_a_plain_directory_does(form, tmp_path):
    # A chunk that is written is stored, also if all of it is the fill value.
    with zarr.config.set({"array.write_empty_chunks": True}):
        operations = Operations(form, tmp_path, random.Random(SEED))
        try:
            run(operations, COUNT)
        except Exception as error:
            said = operations.subject.complaints()
            last = "\n".join(operations.done[-SHOWN:])
            raise AssertionError(
                f"ZARRFS_TEST_SEED={SEED} ZARRFS_TEST_OPERATIONS={COUNT} {form.name}: {error}\n"
                f"the last operations, of {len(operations.done)}:\n{last}\nthe daemon said:\n{said}"
            ) from error
        finally:
            operations.end()
    assert len(operations.done) >= COUNT

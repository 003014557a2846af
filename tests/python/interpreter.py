"""Mounts a store and comes to one of the ends that an interpreter can have; test_module.py runs it.

    interpreter.py STORE STATE

It prints a line for each step.
"""

import gc
import os
import signal
import sys
import time

import zarrfs


def say(*words):
    print(*words, flush=True)


def wait_for_a_signal():
    time.sleep(60)


def mount_in_with(store, then):
    with zarrfs.mount(store, memory="8M") as mounted:
        say("mounted")
        then(mounted)


def read(mounted):
    array = mounted.open("tas")
    while True:
        array[:].sum()


def fork(mounted):
    """The child leaves the `with`, and ends as an interpreter does."""
    child = os.fork()
    if child == 0:
        assert mounted.open("tas")[0, 0, 0] > 0
        sys.exit(0)
    os.waitpid(child, 0)
    say("child-ended")
    assert mounted.is_mounted() and mounted.open("tas")[0, 0, 0] > 0
    say("still-mounted")


def fork_on(_):
    child = os.fork()
    if child == 0:
        wait_for_a_signal()
    say("child", child)
    wait_for_a_signal()


def refuse(_):
    raise ValueError("on purpose")


def main(store, state):
    if state == "forgotten":
        kept = zarrfs.mount(store)
        say("mounted")
        wait_for_a_signal()
        del kept
    elif state == "again":
        say("begins")
        while True:
            zarrfs.mount(store).unmount()
    elif state == "ends":
        global ends
        ends = zarrfs.mount(store)
        say("mounted")
    elif state == "garbage":
        mounted = zarrfs.mount(store)
        path = mounted.path
        del mounted
        gc.collect()
        assert not path.exists()
        say("mounted")
    else:
        states = {
            "mounted": lambda _: wait_for_a_signal(),
            "reading": read,
            "exits": lambda _: sys.exit(3),
            "leaves": lambda _: os._exit(4),
            "raises": refuse,
            "forks": fork,
            "forks-on": fork_on,
        }
        mount_in_with(store, states[state])


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        # As Python itself ends.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)

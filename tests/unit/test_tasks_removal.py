"""Removing what somebody hostile left: deep, odd, linked, refilled."""

from __future__ import annotations

import os
import resource
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from marathond.flow.exporter import _remove
from marathond.tasks.removal import Found, empty_folder, remove_tree

DEEPER_THAN_OUR_STACK = 2500


def dig(folder: Path, levels: int) -> None:
    """A path of that many levels is longer than the kernel takes in one piece: step by step."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)


def test_a_tree_deeper_than_the_stack_and_the_descriptors_is_removed(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    dig(tmp_path, DEEPER_THAN_OUR_STACK)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
    try:
        assert empty_folder(tmp_path) == Found(("d",), 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_and_never_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    (outside / "kept").mkdir(parents=True)
    (inside / "a").mkdir(parents=True)
    (inside / "link").symlink_to(outside)
    (inside / "a" / "link").symlink_to(outside / "kept")
    os.mkfifo(inside / "fifo")
    assert empty_folder(inside) == Found(("a", "fifo", "link"), 3)
    assert list(inside.iterdir()) == [] and (outside / "kept").is_dir()


def test_names_that_are_no_text_are_told_and_removed(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xffb")).touch()
    assert [os.fsencode(name) for name in empty_folder(tmp_path).names] == [b"a\xffb"]


def test_a_rival_that_refills_does_not_keep_us_busy(tmp_path: Path) -> None:
    """With nothing but this thread's speed between them, either end is right; a hang or another error is not."""
    stop = threading.Event()

    def refill() -> None:
        while not stop.is_set():
            with suppress(FileExistsError):
                os.mkdir(tmp_path / "d")  # noqa: PTH102 - mkdir(exist_ok=True) looks again and trips over the removal

    rival = threading.Thread(target=refill)
    rival.start()
    try:
        empty_folder(tmp_path)
    except OSError as error:
        assert "rounds of removal" in str(error)
    finally:
        stop.set()
        rival.join()


def test_remove_tree_takes_the_folder_too_and_an_absent_one_is_fine(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    remove_tree(tmp_path / "x")
    remove_tree(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "kept").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError):
        empty_folder(tmp_path / "link")
    assert (tmp_path / "real" / "kept").exists()


def test_a_run_directory_that_an_agent_dug_deep_into_does_not_end_the_daemon(tmp_path: Path) -> None:
    run = tmp_path / "t0001"
    (run / "logs" / "artifacts").mkdir(parents=True)
    dig(run / "logs" / "artifacts", DEEPER_THAN_OUR_STACK)
    try:
        _remove(run)
        assert not run.exists()
    finally:
        remove_tree(run)

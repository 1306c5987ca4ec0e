"""Which files of a task's ``environment/`` would speak to an agent: instructions, settings and skills beside the work.

Owns the look into the folder.  What an image brings by itself is not seen here; a trial's own look into its container sees that.
"""

from __future__ import annotations

import os
from pathlib import Path

from marathond.core.projectfiles import PROJECT_FILES

FOUND_AT_MOST = 20


def speaking_files(task: Path) -> tuple[str, ...]:
    """Paths relative to ``environment/``, sorted, at most :data:`FOUND_AT_MOST`; links to folders are not followed.

    Empty where there is no such folder, or none that can be read: then the task itself is refused elsewhere.
    """
    root, found = task / "environment", []
    for place, folders, files in os.walk(root):
        here = Path(place)
        for name in PROJECT_FILES:
            last = name.rpartition("/")[2]
            if last in (*folders, *files) and f"/{(here / last).relative_to(root)}".endswith(f"/{name}"):
                found.append(str((here / last).relative_to(root)))
        folders.sort()
    return tuple(sorted(found)[:FOUND_AT_MOST])

"""What everything secret obeys: one process, no copies, no test noise, all or nothing, files and signals included.

Two copies of one noise vector give away whatever differs between them, so an object that holds noise lives in one
place: :class:`Guarded` refuses copy, deepcopy and pickle, and is dead in a forked child. A child is told from its
parent by sixteen random bytes in a page that the kernel empties at a fork (``MADV_WIPEONFORK``), because the number of
a process may be the same in another namespace; where there is no such page, by Python's hook at a fork and the number.

**All or nothing.** While :func:`changing` lasts, the state counts as *broken*: it becomes so by one assignment before
the first change and whole again by one after the last. Whatever ends the change early, a signal included,
leaves it broken, and what is broken refuses everything, saying why.

**Errors** that leave through :func:`quiet` carry no values of local variables: tools that collect errors send those
along with the stack.

**Files** are replaced as a whole: after a crash there is the old one or the new one. A new file beside the target,
under a name that nobody can guess and that must not exist yet (so no link that somebody put there is followed), fsync,
rename, fsync of the directory. Whatever fails removes it again; what is killed leaves it without the lock that says
whose it is.

**Signals** bring no disorder into threads that hash and count. Python raises what a signal raises (Ctrl-C:
KeyboardInterrupt) in the main thread, between any two of its steps. A pool of ``concurrent.futures`` that is waited for
there can be left with a lock held for ever. So the main thread only ever waits in ``SimpleQueue.get``, which is one
step, and work that must not be torn apart is done by another thread (:func:`apart`), where nothing is raised.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import lru_cache, wraps
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, NoReturn, ParamSpec, SupportsIndex, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ._sampler import Keystream
from .errors import PrivacyError

__all__ = [
    "ENDED", "SECRET", "Guarded", "all_of", "apart", "changing", "clear_leftovers", "crew", "exists_by_now", "frozen",
    "letting_out", "new_identity", "quiet", "replacing", "require_writable", "sync_folder", "temporary", "this_process",
    "unprotected", "wipe", "write_whole",
]  # fmt: skip

WIPE_ON_FORK = 18
"""Linux's MADV_WIPEONFORK, which Python does not name."""

P = ParamSpec("P")
R = TypeVar("R")
Array = TypeVar("Array", bound=NDArray[Any])


def new_identity() -> bytes:
    """Return 16 random bytes of the operating system, in tests as well: the name of a noise vector or a process."""
    return Keystream().words(2).tobytes()


def _emptied_at_fork() -> mmap.mmap | None:
    """Return a page that a forked child finds empty; None where the system has none."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return None
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        page.madvise(WIPE_ON_FORK)
    except (OSError, ValueError, AttributeError):
        return None
    return page


_page = _emptied_at_fork()
_name = b""


def _take_name() -> None:
    """Name this process, at the start and after a fork, when it has one thread."""
    global _name
    _name = new_identity()
    if _page is not None:
        _page[:16] = _name


_take_name()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_take_name)


def this_process() -> tuple[int, bytes]:
    """Return what no other process has, forks in other namespaces included.

    >>> this_process() == this_process()
    True
    """
    if _page is not None and _page[:16] != _name:  # forked where Python did not notice
        _take_name()
    return os.getpid(), _name


class Guarded:
    """Something secret: it holds noise that has not left the process, or what the noise hides.

    noun : what to call it in messages
    label : None for noise of the operating system's entropy; else what is wrong with it
    """

    noun: ClassVar[str] = "sketch"

    def __init__(self, label: str | None = None) -> None:
        self._lock = threading.RLock()
        self._home = this_process()
        self._label = label
        self._broken: str | None = None

    def _require_here(self, action: str, *, public: bool = False) -> None:
        """Refuse what is broken and, unless its state is ``public``, in a fork."""
        if not public and self._home != this_process():
            raise PrivacyError(
                f"{action} needs the process that made the {self.noun} ({self._home[0]}), this is a fork of it "
                f"({os.getpid()}): two processes must not go on from the same noise"
            )
        if self._broken is not None:
            raise PrivacyError(
                f"{action} needs a whole {self.noun}, this one is broken: {self._broken}, so it may hold a part of a "
                f"change, which must neither leave nor be made again; make a new one and begin again"
            )

    def _require_private(self) -> None:
        """Refuse to let test noise leave, but where :func:`letting_out` says so."""
        if self._label is not None and not unprotected.get():
            raise PrivacyError(
                f"a private {self.noun} needs noise from the operating system, this one's is {self._label}: it can be "
                f"neither saved nor released (unnoise.testing.release gives the counts of a sketch)"
            )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse copy, deepcopy and pickle, which all come here."""
        raise PrivacyError(
            f"a {self.noun} must not be copied or pickled: two copies of one noise would give away what differs "
            f"between them; use save and load where there are such"
        )


unprotected: ContextVar[bool] = ContextVar("unprotected", default=False)
"""Whether noise that protects nobody may leave; only :func:`letting_out` ever changes it, in a context of its own."""


def letting_out(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what the call returns; any noise may leave through it, and through nothing else, whatever interrupts it.

    For :mod:`unnoise.testing`, and for a site, whose cells leave as two shares only.
    """
    inside = copy_context()
    inside.run(unprotected.set, True)
    return inside.run(call, *args, **kwargs)


@contextmanager
def changing(secrets: Sequence[Guarded], why: str) -> Iterator[None]:
    """Let all of them count as broken until the block has run to its end; ``why`` they are if it does not."""
    for secret in secrets:
        secret._broken = why
    yield
    for secret in secrets:
        secret._broken = None


def frozen(array: Array) -> Array:
    """Return the array as it may be released: read-only, and so is what it is a view of.

    The memory is the same, so it must not change any more.

    >>> frozen(np.arange(3)).flags.writeable = True
    Traceback (most recent call last):
    ...
    ValueError: cannot set WRITEABLE flag to True of this array
    """
    array.flags.writeable = False
    kept: Any = np.frombuffer(memoryview(cast(Any, array)).toreadonly(), dtype=array.dtype).reshape(array.shape)
    return cast(Array, kept)


def wipe(*scratch: NDArray[Any] | None) -> None:
    """Overwrite memory that held data."""
    for memory in scratch:
        if memory is not None:
            memory.fill(0)


ENDED = "the call had come to its end by then: do not make it again"


def quiet(call: Callable[P, R]) -> Callable[P, R]:
    """Let errors leave without the values of local variables, which error trackers would collect.

    Files and lines stay. The caller's own frames are the caller's.
    """

    @wraps(call)
    def shielded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except BaseException as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # raised here: a late signal
                error.add_note(ENDED)
            _forget_locals(error)
            failure = error
        del args, kwargs
        try:
            raise failure
        finally:
            del failure  # else frame and error would keep each other alive

    return shielded


def _forget_locals(error: BaseException) -> None:
    """Clear the frames of an error and of those it came from."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            waiting += [one.__cause__, one.__context__]


# ── files that are replaced as a whole ──────────────────────────────────────────────────────────────────────────────

SECRET = 0o600
"""The mode of a file that holds something secret, a share of exact cells or a token: its owner alone reads it."""

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def require_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path at which no file can be put, before anything is done for it."""
    target = Path(path)
    parent = target.absolute().parent
    _require_replaceable(target)
    if not parent.is_dir():
        raise FileNotFoundError(f"{target} must be in a folder that exists: there is no folder {parent}")
    if not os.access(parent, os.W_OK):
        raise PermissionError(f"{target} must be in a folder that can be written, got {parent}")


def _require_replaceable(target: Path) -> None:
    """Refuse what is there and no file: whoever may write to /dev would make a file of a device."""
    if target.exists() and not target.is_file():
        raise OSError(f"{target} must be a file, got a folder, pipe or device")


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def temporary(target: Path, mode: int = SECRET) -> Iterator[tuple[Path, int]]:
    """Yield a new file beside the target, open and locked; what has its name at the end is removed.

    A process that is killed loses its locks: what nobody locks is a leftover (:func:`clear_leftovers`).
    """
    while True:
        path = target.with_name(f".{target.name[:80]}.{new_identity().hex()}.tmp")
        handle = os.open(path, NEW, mode)
        with suppress(ImportError, OSError):  # where there are no locks, nothing is taken for a leftover
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:  # else it was cleared away before it was locked
            break
        os.close(handle)
    try:
        yield path, handle
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def clear_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove what killed processes have left of temporary files beside ``path``, and what SQLite put beside those."""
    target = Path(path).absolute()
    name = re.compile(rf"\.{re.escape(target.name[:80])}\.[0-9a-f]{{32}}\.tmp")
    for found in [one for one in target.parent.iterdir() if name.fullmatch(one.name) and one.is_file()]:
        with suppress(ImportError, OSError):  # locked, gone by now or somebody else's
            import fcntl

            with open(found, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.with_name(f"{found.name}-journal").unlink(missing_ok=True)
                found.unlink()


@contextmanager
def replacing(path: str | os.PathLike[str], mode: int = 0o666, *, new: bool = False) -> Iterator[int]:
    """Yield the descriptor of a new file, which replaces the one at ``path`` when the block ends well.

    ``new``: there must be none by then, or it stays and this one is refused.
    """
    target = Path(path)
    _require_replaceable(target)
    with temporary(target, mode) as (fresh, handle):
        try:
            yield handle
            os.fsync(handle)
            if new:
                _put_new(fresh, target)
            else:
                os.replace(fresh, target)
        except OSError as error:
            if error.errno in NO_ROOM and error.filename is None:
                error.filename = os.fspath(target)  # of a write, which names no file
            raise
    sync_folder(target.absolute().parent)


def _put_new(fresh: Path, target: Path) -> None:
    """Name a file that has no name but a temporary one: a second name, unlike a rename, never replaces a first."""
    try:
        os.link(fresh, target)
    except FileExistsError:
        raise exists_by_now(target) from None
    except OSError:  # a file system without such names: what is left is a look just before
        if os.path.lexists(target):
            raise exists_by_now(target) from None
        os.rename(fresh, target)


def exists_by_now(target: Path) -> FileExistsError:
    """Return what is raised where another program was faster."""
    said = "exists by now: another program wrote it meanwhile, so it was left alone and nothing was written"
    return FileExistsError(errno.EEXIST, said, os.fspath(target))


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(
    path: str | os.PathLike[str], content: str | bytes | memoryview, mode: int = 0o666, *, new: bool = False
) -> None:
    """Write a text or bytes into a file, whole or not at all; ``new``: not over one that is there."""
    rest = memoryview(content.encode() if isinstance(content, str) else content)
    with replacing(path, mode, new=new) as handle:
        while rest:
            rest = rest[os.write(handle, rest) :]


# ── threads that no signal can bring into disorder ──────────────────────────────────────────────────────────────────


Work = SimpleQueue[Callable[[], None]]
"""What some threads are to do, one call after the other; a call must not raise."""


@lru_cache(maxsize=2)  # made once, because a thread is slow to start while others work
def crew(name: str = "count") -> Work:
    """Return the queue of the threads of this process: "count", one for each processor, or the one that is "apart"."""
    waiting: Work = SimpleQueue()

    def go_on() -> None:
        while True:
            waiting.get()()

    for number in range(1 if name == "apart" else os.cpu_count() or 1):
        threading.Thread(target=go_on, name=f"unnoise-{name}-{number}", daemon=True).start()
    return waiting


if hasattr(os, "register_at_fork"):  # a fork has none of its parent's threads
    os.register_at_fork(after_in_child=crew.cache_clear)


def all_of(calls: Sequence[Callable[[], None]], stop: threading.Event) -> None:
    """Make all calls, side by side, and return when all have ended; raise what one of them raised.

    An interruption sets ``stop``, which the calls must heed, and waits for nobody.
    """
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def reporting(call: Callable[[], None]) -> Callable[[], None]:
        def work() -> None:
            try:
                call()
                ended.put(None)
            except BaseException as error:
                ended.put(error)

        return work

    try:
        for call in calls:
            crew().put(reporting(call))
        errors = [ended.get() for _ in calls]
    except BaseException:
        stop.set()
        raise
    for error in errors:
        if error is not None:
            raise error


def apart(work: Callable[[], R], stop: threading.Event) -> R:
    """Return what ``work`` returns; called by the main thread, it is done in another one, to its end.

    An interruption sets ``stop``, which the work should heed, and is raised when the work has ended. (A second one is
    raised at once; the work goes on to its end by itself.)
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[R] = []
    errors: list[BaseException] = []
    ended: SimpleQueue[None] = SimpleQueue()
    once = iter([work])

    def reporting() -> None:
        for call in once:  # not again when it was submitted twice
            try:
                results.append(call())
            except BaseException as error:
                errors.append(error)
        ended.put(None)

    try:
        crew("apart").put(reporting)
        ended.get()
    except BaseException:
        stop.set()
        crew("apart").put(reporting)  # the interruption may have come before the first, or with its end
        ended.get()
        raise
    if errors:
        raise errors[0]
    return results[0]

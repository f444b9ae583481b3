"""Errors of the lcache program as Python exceptions."""

import errno
import inspect
import os
import pickle
import re

import pytest

import lcache
from lcache import errors
from lcache._client.program_errors import exception, in_python


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ("give --budget 5MiB or more", 'give budget="5MiB" or more'),
        ("give --memory 22MiB or more", 'give memory="22MiB" or more'),
        ("--budget lots: not a size", 'budget="lots": not a size'),
        ("--epochs -1: give 0 (unknown) or more", "epochs=-1: give 0 (unknown) or more"),
        ("add --batch-size B, the samples in one batch", "add batch_size=B, the samples in one batch"),
        ("use another --cache, or remove it", "use another cache=, or remove it"),
        ("give another --cache", "give another cache="),
        ("give --world-size 4 or more, or ranks below 2", "give world_size=4 or more, or ranks below 2"),
        ("give --follow-links if they may have those too", "give follow_links=True if they may have those too"),
        ("leave out --no-follow-links", "leave out follow_links=False"),
        ("(--socket-group, --socket-mode)", "(--socket-group, --socket-mode)"),
        ("run lcache ingest --cache /c --source …; then give --cache D", "run lcache ingest --cache /c --source …; then give cache=D"),
        ("stop it with lcache stop 7, or use another cache", "stop it with lcache stop 7, or use another cache"),
        ("allow it (--allow-empty), or list it", "allow it (allow_empty=True), or list it"),
        ("in eu-1, not us-1: give --s3-region eu-1", 'in eu-1, not us-1: give s3={"region": "eu-1"}'),
        ("give --s3-region, or --s3-endpoint-url", 'give s3={"region": …}, or s3={"endpoint_url": …}'),
        ("check its name, and --s3-endpoint-url", 'check its name, and s3={"endpoint_url": …}'),
        ("give --s3-profile NAME, or --s3-unsigned if it is public", 'give s3={"profile": NAME}, or s3={"unsigned": True} if it is public'),
        ("leave out --s3-unsigned, and give", 'leave out s3={"unsigned": True}, and give'),
        ("give --s3-requester-pays if", 'give s3={"requester_pays": True} if'),
        ("so with --s3-path-style", 'so with s3={"path_style": True}'),
        ("give --http-allow-other-hosts if that is meant", "give LCACHE_HTTP_ALLOW_OTHER_HOSTS=true in the environment if that is meant"),
        ("give --seed S, or --param data_seed=S", 'give seed=S, or params={"data_seed": S}'),
        ("give --param loader_drop_last=true", 'give params={"loader_drop_last": True}'),
        ("--recipe TRUE: unknown", 'recipe="TRUE": unknown'),
        ("or a saved state (--param state=FILE)", 'or a saved state (params={"state": FILE})'),
        ("--param shuffle= is missing", 'params={"shuffle": …} is missing'),
        ("a name like a--budget is left", "a name like a--budget is left"),
    ],
)
def test_flags_are_arguments(said, want):
    assert in_python(said) == want


# Arguments of lcache.open that are not flags of the program, except for s3, whose settings are flags.
WITHOUT_FLAG = {"rank", "s3", "timeout", "likely_batch_size", "job", "ranges"}


def test_every_flag_has_its_argument():
    for name in set(inspect.signature(lcache.open).parameters) - WITHOUT_FLAG:
        flag = {"params": "param"}.get(name, name).replace("_", "-")
        assert in_python(f"give --{flag}").startswith(f"give {name}=")


@pytest.mark.parametrize(
    ("written", "usage", "kind", "number", "text"),
    [
        ("lcache ingest: budget of 1 MB is too small; give --budget 5MiB or more\n", False, lcache.ArgumentError, None, '/d: budget of 1 MB is too small; give budget="5MiB" or more'),
        ("lcache ingest: --group foo: must be none or stem\n", True, ValueError, None, '/d: group="foo": must be none or stem'),
        ('{"schema": 1, "error": {"kind": "usage"}}\nlcache serve: --on-error x: must be\n', False, ValueError, None, '/d: on_error="x": must be'),
        ('{"schema": 1, "error": {"kind": "not_found"}}\nlcache ingest: open "/d": gone\n', False, FileNotFoundError, errno.ENOENT, 'open "/d": gone'),
        ('{"schema": 1, "error": {"kind": "permission"}}\nlcache ingest: open "/d/x": denied\n', False, PermissionError, errno.EACCES, 'open "/d/x": denied'),
        ('{"schema": 1, "error": {"kind": "no_space"}}\nlcache ingest: write /d/arena: full\n', False, OSError, errno.ENOSPC, "write /d/arena: full"),
        ("default budget: 1 GB\ntime=1 level=WARN\nlcache ingest: the disk is odd\n", False, lcache.Error, None, "/d: the disk is odd"),
        ("{broken\n", False, lcache.Error, None, "/d: the lcache program ended without a message"),
        ("", False, lcache.Error, None, "/d: the lcache program ended without a message"),
    ],
)
def test_exception_of_a_program(written, usage, kind, number, text):
    error = exception("/d", written, usage)
    assert isinstance(error, kind) and isinstance(error, lcache.Error)
    assert str(error) == f"{text} [{type(error).code}]" and getattr(error, "errno", None) == number


def test_code_of_a_program():
    """The exception has the code at the end of the program's line. An older program writes none: then it is the code of the class."""
    error = exception("/d", '{"schema": 1, "error": {"code": "LC021"}}\nlcache serve: /d is in use [LC021]\n')
    assert (type(error), str(error), error.code) == (lcache.Error, "/d is in use [LC021]", "LC021")
    error = exception("/d", "lcache serve: /d is in use [or so]\n")
    assert (str(error), error.code) == ("/d is in use [or so] [LC050]", "LC050")


CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, lcache.Error)]


@pytest.mark.parametrize("kind", CLASSES)
def test_codes_of_classes(kind):
    """Each class has a code of its own, which docs/errors.md explains. A code that the server does not send is listed with the class."""
    assert [other for other in CLASSES if vars(other).get("code") == kind.code] == [kind]
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "errors.md")) as f:
        (row,) = re.findall(rf"^\| `{kind.code}` \| (\S+) \|", f.read(), re.M)
    assert row == kind.__name__ or kind.code < "LC014"


def test_copies_keep_the_code():
    """As when a loader's worker fails: torch raises the same class again, with a traceback that ends with the first one's text."""
    first = errors.MissingSampleError("read a.jpg: gone [LC001]")
    text = f"Caught MissingSampleError in DataLoader worker process 0.\nTraceback:\nlcache.errors.MissingSampleError: {first}\n"
    again = type(first)(text)
    assert again.code == first.code == "LC001" and str(again) == text.rstrip()
    assert errors.Error(f"open: {first}").code == "LC001"


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.of_errno(errno.ENOENT, "gone"), FileNotFoundError),
        (errors.of_errno(errno.EPERM, "no"), PermissionError),
        (errors.of_errno(errno.ENOTDIR, "a file"), NotADirectoryError),
        (errors.of_errno(errno.EIO, "bad"), OSError),
        (errors.RefusedError("not yours"), PermissionError),
        (errors.RefusedError("not yours"), ConnectionError),
        (errors.MissingSampleError("gone", "a.jpg", "gone from the source"), FileNotFoundError),
        (errors.ForbiddenSampleError("no", "a.jpg", "permission denied"), PermissionError),
    ],
)
def test_builtin_exceptions(error, builtin):
    """The exceptions are caught as builtin exceptions and as lcache.Error, and can be pickled by a worker."""
    assert isinstance(error, builtin) and isinstance(error, lcache.Error)
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error) and str(twin) == str(error)


def test_other_samples():
    assert not isinstance(lcache.SampleError("bad", "a.jpg", "input/output error"), OSError)
    missing = errors.MissingSampleError("read a.jpg: gone", "a.jpg", "gone")
    assert (missing.sample, missing.cause, str(missing)) == ("a.jpg", "gone", "read a.jpg: gone [LC002]")

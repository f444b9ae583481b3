"""Map-style datasets over an lcache job. The bytes of samples come from lcache; everything else works as in torch and torchvision."""

from __future__ import annotations

import os
import secrets
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch.utils.data

from .._client.environment import process_run
from .._client.memory import keep_freed
from .._client.options import Options
from .._client.schemes import of_records
from .._client.server_errors import may_be_too_large
from ..batch import Batch
from ..errors import ArgumentError, DecodeError, Error, SampleError
from ..job import Job
from ..opening import named_source
from . import asked_indices, fixed_lists
from ._order import tagged_batch
from ._order.loader_job import BorrowedJob, Leaf
from ._order.tagged_batch import Following, Position, TaggedBatch
from .bad_samples import left_out
from .dataset_job import job_of
from .decode_errors import decode_error
from .fetched import Fetched, each, of_thread
from .ready_batch import ReadyBatch, WholeBatch, chosen, plain, with_columns, with_index
from .sample import Sample, first_part

T = TypeVar("T", covariant=True)

_REPORT = 0.05  # seconds of decoding between two reports to the server, and the most that stays unreported at the end of an epoch

_OTHER_CLASSES = "the labels are the source's. Make others in decode, or by labels=; use torch.utils.data.Subset(dataset, indices) for a part of the samples"

Entry = tuple[Job, Batch, int, dict[str, bytes]]  # a sample of a batch: the job, the batch, the position in it, and copies of the parts


class _Asked(NamedTuple):
    """The job that a batch is requested from, and its position there."""

    job: Job
    at: Position | None
    following: Following | None = None  # the next batch


class Dataset(torch.utils.data.Dataset[T], Leaf, Generic[T]):
    """A map-style dataset of a source's samples.

    decode(data: bytes, sample: Sample) makes each sample. data is the sample's first part; sample.parts has all parts. Without decode a sample is
    (bytes, label). decode="array" is for samples of one size, with numpy's dtype and shape: each batch is one tensor, and samples are its rows. Without
    shape= the samples have one dimension and may have different lengths, as sequences of tokens: each is a tensor of its own. dtype and shape are also the
    record's size of a source bin:PATTERN.

    decode_batch(views, columns) makes all samples of a batch at once. views are read-only memoryviews of the samples (of their first parts) in shared
    memory, without a copy. columns is the lcache.Batch, with indices, labels, lengths, names and parts. It returns a list with one item for each sample.
    Any other result, such as a tensor or a dict of tensors, is the ready batch, which default_collate does not change. The bytes stay unchanged as long
    as anything refers to a view. A subclass may have decode and decode_batch as methods.

    With return_index=True each sample is (x, y, index). index is the job's index of the served sample, for job.observe. If decode returns a tuple of two,
    they are x and y. Otherwise x is the result of decode, and y the label. A ready batch becomes three columns in the same way.

    The job is lcache.open(source, cache, …), with that function's keyword arguments. Without a source it is the job of the server at socket or
    $LCACHE_SOCKET, or `job` if that is a Job. Any loader and sampler may be used, and each batch is one request. Each loader of lcache is its own job,
    unless job= names one for all loaders of this dataset. Copies in worker processes have their own connections. The pickle of a dataset has only what a
    new connection needs.

    bad= leaves samples out, as if their files did not exist. It is the path of a file with one name a line, or "drop" for the list that the last
    lcache.torch.check of this source has found.

    Raises the errors of lcache.open, and ArgumentError for a server that skips unreadable samples. Access raises IndexError, SampleError or
    DecodeError.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | None = None,
        decode: Callable[[bytes, Sample], T] | str | None = None,
        *,
        decode_batch: Callable[[Sequence[memoryview], Batch], Any] | None = None,
        dtype: Any = None,
        shape: int | Sequence[int] | None = None,
        cache: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        socket: str | os.PathLike[str] | None = None,
        job: Job | str | None = None,
        recipe: str | None = None,
        seed: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        world_size: int | None = None,
        rank: int | None = None,
        drop_last: bool | None = None,
        params: Mapping[str, Any] | None = None,
        budget: int | str | None = None,
        memory: int | str | None = None,
        ext: str | Iterable[str] = (),
        flat: bool = False,
        group: str | None = None,
        labels: str | os.PathLike[str] | None = None,
        allow_empty: bool = False,
        follow_links: bool | None = None,
        s3: Mapping[str, Any] | None = None,
        on_error: str | None = None,
        timeout: float | None = None,
        likely_batch_size: int | None = None,
        part: str | None = None,
        columns: str | Iterable[str] | None = None,
        label_column: str | None = None,
        feature: str | Iterable[str] | None = None,
        label_feature: str | None = None,
        record_bytes: int | None = None,
        label_field: str | None = None,
        key: str | None = None,
        stream: bool = False,
        cluster: str | None = None,
        cluster_key: str | os.PathLike[str] | None = None,
        ranges: Iterable[Mapping[str, Any] | tuple[Any, ...]] | None = None,
        return_index: bool = False,
        bad: str | os.PathLike[str] | None = None,
    ) -> None:
        self._whole = chosen(decode, decode_batch, dtype, shape)
        if self._whole is None and decode is None and hasattr(type(self), "decode_batch"):
            self._whole = WholeBatch("decode_batch", None)
        self._return_index = return_index
        if not isinstance(job, Job):
            options = Options.of(of_records(locals()))
            job = job_of(source if ranges is None else named_source(source, ranges, cache), options)
        if job.on_error != "fail":
            job.close()
            raise ArgumentError(
                f"use {job!r} in a dataset: its server leaves unreadable samples out of their batches (on_error={job.on_error!r}), and PyTorch needs every "
                'sample that it requests: give on_error="fail" (for lcache serve: --on-error fail), and remove such samples from the source'
            )
        self.job = job
        for name, function in (("decode", decode), ("decode_batch", decode_batch)):
            if function is not None or not hasattr(type(self), name):  # otherwise it is a subclass's method
                setattr(self, name, function)
        self.decode_seconds = 0.0  # in this process
        self._reported = 0.0  # decode_seconds that were reported to the server
        self.lcache_id = secrets.token_hex(4)
        self.opener = process_run()
        self._borrowed: BorrowedJob | None = None
        self._length = job.samples
        self.lcache_kept = None
        self._ahead: tuple[TaggedBatch, Fetched] | None = None  # a batch whose samples are requested one by one
        if bad is not None:
            self._leave_out(bad)

    def _leave_out(self, bad: str | os.PathLike[str]) -> None:
        """Leaves out the samples that bad= lists."""
        stay, self.lcache_left_out = left_out(bad, self.job, self.lcache_kept)
        if stay is not None:
            self._keep_only(stay)

    def _keep_only(self, stay: Sequence[int]) -> None:
        """Keeps the samples at these positions."""
        kept = self.lcache_kept
        self.lcache_kept = array("I", stay if kept is None else (kept[i] for i in stay))
        self._length = len(self.lcache_kept)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in self._derived} | {"decode_seconds": 0.0, "_reported": 0.0, "_ahead": None, "_borrowed": None}

    _derived: tuple[str, ...] = (fixed_lists.KEPT, "_asked_more", "_asks_others", "_has_own")  # attributes that a copy computes again
    # For the last batch, a subclass's own __getitem__ requested more samples than the batch has; other samples; few samples, because it has its own.
    _asked_more = _asks_others = _has_own = False

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        left_out = self.lcache_left_out.samples
        bad = f" without {left_out} bad one{'s' if left_out > 1 else ''}" if left_out else ""
        return f"<{type(self).__name__} of {self._length} samples{bad}, {self.job!r}>"

    @fixed_lists.fixed(_OTHER_CLASSES)
    def classes(self) -> list[str]:
        """The names of the labels: classes[label]."""
        return list(self.job.classes)

    @fixed_lists.fixed(_OTHER_CLASSES)
    def class_to_idx(self) -> dict[str, int]:
        """The labels, by name."""
        return {name: label for label, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> T:
        if type(index) is not int:
            if asked_indices.are_many(index):
                several: T = self._several(asked_indices.many(index))
                return several
            index = asked_indices.one(index)
        index = self._in_job(index)
        item = self._fetched(index)
        return self._one(self._made([index], self._alone()) if item is None else [self._sample(item)])

    def lcache_overrides_access(self) -> bool:
        kind = type(self)
        return kind.__getitem__ is not Dataset.__getitem__ or kind.__getitems__ is not Dataset.__getitems__

    def _several(self, indices: list[int]) -> Any:
        """The value of dataset[[3, 5]]: the ready batch, or a list of the samples."""
        made = self._batch(indices) if indices else []
        return made.value if isinstance(made, ReadyBatch) else list(made)

    def _fetched(self, index: int) -> Any | None:
        """The sample's item, if it was fetched together with others by one request. None: it must be requested alone."""
        fetched = of_thread(self.lcache_id)
        if fetched is not None:
            return fetched.take(index)
        batch = tagged_batch.last_iterated()
        if batch is not None and batch.trial:
            batch.record_asked(self.lcache_id, [index])
        part = batch.parts.get(self.lcache_id) if batch is not None and batch.parts else None
        if batch is None or part is None:
            return None
        # ConcatDataset requests a batch's samples one by one. The first of these requests fetches them all.
        if self._ahead is None or self._ahead[0] is not batch:
            if index not in part:
                return None
            self._ahead = batch, self._fetch(part, self._asked(batch, batch.at))
        return self._ahead[1].take(index)

    def _alone(self) -> _Asked:
        """The job that a single sample is requested from."""
        fetched = of_thread(self.lcache_id)
        return self._asked(tagged_batch.last_iterated(), None) if fetched is None else _Asked(fetched.job, None)

    def _fetch(self, indices: list[int], asked: _Asked) -> Fetched:
        """The samples of one request. If one can't be read or decoded, it fetches none: then each is requested alone, and only that one fails."""
        try:
            if self._whole is not None:
                return Fetched(asked.job, zip(indices, self._made(indices, asked)))
            return Fetched(asked.job, self._entries(indices, asked), again=True)
        except SampleError:
            return Fetched(asked.job)

    def _entry(self, index: int) -> Entry:
        """The bytes of a sample."""
        item: Entry | None = self._fetched(index) if self._whole is None else None
        return next(self._entries([index], self._alone()))[1] if item is None else item

    def _sample(self, item: Any) -> Any:
        """Makes a sample from a fetched item."""
        if self._whole is not None:
            return item
        job, batch, i, parts = item
        return self._make(job, batch, i, dict(parts))

    def _asked(self, batch: TaggedBatch | None, at: Position | None) -> _Asked:
        """The job that a batch's samples are requested from, and the batch's position in it. Without a batch, the dataset's own job."""
        if batch is None or batch.token is None:
            return _Asked(self.job, at)
        if self._borrowed is None:
            self._borrowed = BorrowedJob()
        job = self._borrowed.of(self, batch.token)
        return _Asked(self.job, None) if job is None else _Asked(job, at)

    def _one(self, samples: Sequence[Any]) -> T:
        one: T = plain(samples[0])
        return one

    def __getitems__(self, indices: Sequence[int]) -> Sequence[T]:
        item = self._own_item()
        if item is None or of_thread(self.lcache_id) is not None:
            return self._batch(indices)
        return self._each(item, indices)

    def _own_item(self) -> Callable[[Any], T] | None:
        """The __getitem__ of a subclass, if a batch's samples come from it. None: they come from this class.

        If a subclass has a __getitems__ that called this one, the __getitem__ of its super() is used.
        """
        kind = type(self)
        if kind.__getitem__ is Dataset.__getitem__:
            return None
        bases = kind.__mro__
        callers = [base for base in bases[: bases.index(Dataset)] if "__getitems__" in vars(base)]
        if not callers:
            return lambda index: self[index]
        above: Any = callers[-1]
        item: Any = super(above, self).__getitem__
        return None if getattr(item, "__func__", None) is Dataset.__getitem__ else item

    def _each(self, item: Callable[[Any], T], indices: Sequence[Any]) -> list[T]:
        """The samples of a subclass's own __getitem__. One request fetches all bytes, and super().__getitem__ returns them one by one."""
        self._refuse_importance(indices)
        wanted = [] if self._asks_others or self._has_own else self._likely(indices[:])
        batch, asked = self._request(indices, wanted)
        if len(wanted) < len(indices):
            asked = _Asked(asked.job, None)
        elif self._asked_more:
            asked = asked._replace(following=None)  # any other request cancels an early one
        fetched = self._fetch(wanted, asked) if wanted else Fetched(asked.job)
        counted, began = self.decode_seconds, time.perf_counter()
        made = each(self.lcache_id, fetched, item, indices[:])
        if not fetched.others:
            self._count(asked.job, began + self.decode_seconds - counted)  # all of the time is decoding, and a part is already counted
        self._asked_more = fetched.others > 0
        self._asks_others = self._asks_others or (fetched.few_used and fetched.others > 0)
        self._has_own = fetched.few_used if wanted else not fetched.others  # if the batch requested samples, the next batch is fetched together again
        if batch is not None and batch.trial and wanted and (fetched.all_used or fetched.only_asked(wanted)):
            batch.record_asked(self.lcache_id, wanted)
        return made

    def _likely(self, indices: Sequence[Any]) -> list[int]:
        """The job's indices of the samples that a subclass's __getitem__ is likely to request: its own indices, if they are valid in this dataset."""
        found = []
        for index in indices:
            try:
                found.append(self._in_job(asked_indices.one(index)))
            except (TypeError, IndexError):
                pass  # it may mean anything to the subclass
        return found

    def _batch(self, indices: Sequence[int]) -> Sequence[Any]:
        """The samples of a batch, from one request."""
        return self._made(*self._requested(indices))

    def _requested(self, indices: Sequence[int]) -> tuple[list[int], _Asked]:
        """The job's indices of a batch, and the job and position to request them from."""
        self._refuse_importance(indices)
        wanted = asked_indices.plain(indices)
        if self.lcache_kept is not None or (wanted and (min(wanted) < 0 or max(wanted) >= self._length)):
            wanted = [self._in_job(i) for i in wanted]
        batch, asked = self._request(indices, wanted)
        if batch is not None and batch.trial:
            batch.record_asked(self.lcache_id, wanted)
        return wanted, asked

    def _request(self, indices: Sequence[int], wanted: list[int]) -> tuple[TaggedBatch | None, _Asked]:
        """The tagged batch that is requested from the dataset, and the job and position to request it from. wanted are the job's indices."""
        batch = indices if isinstance(indices, TaggedBatch) else tagged_batch.last_iterated()
        asked = self._asked(batch, tagged_batch.position_of(indices, wanted, self.lcache_id))
        if asked.at is not None and isinstance(indices, TaggedBatch):
            asked = asked._replace(following=indices.following)
        return batch, asked

    def _refuse_importance(self, indices: Sequence[int]) -> None:
        if self.lcache_kept is not None and len(indices) and isinstance(indices[0], tagged_batch.FirstOfBatch):
            raise ArgumentError("an ImportanceSampler draws from all samples of its job, and this dataset has only a part of them: use the whole dataset")

    def _in_job(self, index: int) -> int:
        """The job's index of a sample. Raises IndexError if this dataset has no such sample."""
        found = index + self._length if index < 0 else index
        if not 0 <= found < self._length:
            raise IndexError(f"index {index} is outside the dataset, which has {self._length} samples")
        return found if self.lcache_kept is None else self.lcache_kept[found]

    def _made(self, indices: list[int], asked: _Asked) -> Sequence[Any]:
        """The samples of one batch. indices are the job's."""
        if self._whole is not None:
            batches = self._batches(indices, asked)
            batch = batches.pop() if len(batches) == 1 else Batch.merged(batches)
            made = self._at_once(self._whole, asked.job, batch)
            self._request_following(asked, batch)
            return with_columns(made, batch) if self._return_index else made
        if self.decode is None and not self._return_index and type(self)._decoded is Dataset._decoded:
            batches = self._batches(indices, asked)
            pairs = [pair for batch in batches for pair in _pairs(batch)]
            self._request_following(asked, batches[-1])
            return pairs
        return [self._make(*entry) for _, entry in self._entries(indices, asked)]

    def _at_once(self, whole: WholeBatch, job: Job, batch: Batch) -> Sequence[Any]:
        """Makes all samples of a batch, and counts the time. Raises DecodeError for an exception of decode_batch."""
        began = time.perf_counter()
        try:
            return whole.items(batch, self.decode_batch)
        except Error:
            raise
        except Exception as e:
            indices = batch.indices.tolist()
            shown = ", ".join(map(str, indices[:8])) + (", …" if len(indices) > 8 else "")
            source = self.job.source
            message = f"{whole.what} failed on the {len(indices)} samples {shown} of {source}: {type(e).__name__}: {e}"
            raise decode_error(e, message, None, None, source) from e
        finally:
            self._count(job, began)

    def _entries(self, indices: list[int], asked: _Asked) -> Iterator[tuple[int, Entry]]:
        """Yields (the requested index, the entry) for each sample. The leases have ended."""
        batches = self._batches(indices, asked)
        for batch in batches:
            keep_freed(sum(batch.lengths))
            copies = [{ext: bytes(view) for ext, view in parts.items()} for parts in batch.parts]
            batch.release()
            if batch is batches[-1]:
                self._request_following(asked, batch)
            for i, parts in enumerate(copies):
                yield batch.requested[i], (asked.job, batch, i, parts)

    def _batches(self, indices: list[int], asked: _Asked) -> list[Batch]:
        """The samples in one batch, or in several if one batch needs more memory than the server lends at once."""
        try:
            return [asked.job.get(indices, at=asked.at)]
        except ArgumentError as e:
            if len(indices) < 2 or not may_be_too_large(e) or max(indices) >= self.job.samples or min(indices) < 0:
                raise
            # The batch has more bytes than the server lends at once, because it was started without this batch size.
            half = len(indices) // 2
            parts, asked = (indices[:half], indices[half:]), asked._replace(at=None)
            return [batch for part in parts for batch in self._batches(part, asked)]

    def _request_following(self, asked: _Asked, batch: Batch) -> None:
        """Requests the next batch, so that the server prepares it while this one is decoded and used. This one's lease has ended, or its tensors hold it."""
        if asked.following is None:
            return
        position, indices, sent = asked.following
        sent[:] = [asked.job]
        try:
            wanted = indices()
            if self.lcache_kept is not None or (wanted and min(wanted) < 0):
                wanted = [self._in_job(i) for i in wanted]
            asked.job.send_early(wanted, position, sum(batch.lengths))
        except (Error, LookupError, TypeError, ValueError, OverflowError):
            pass  # the loop gets this error when it requests that batch

    def _make(self, job: Job, batch: Any, i: int, parts: dict[str, bytes]) -> Any:
        """Decodes sample i of a batch, and counts the time. Raises DecodeError for an exception of decode or a transform."""
        began = time.perf_counter()
        try:
            made = self._decoded(parts, batch, i)
            return with_index(made, batch.labels[i], batch.indices[i]) if self._return_index else made
        except Error:
            raise  # from the server, when decode used a name
        except Exception as e:
            raise self._undecodable(batch.indices[i], e) from e
        finally:
            self._count(job, began)

    def _count(self, job: Job, began: float) -> None:
        """Adds the time of decoding since `began`, and reports the sum from time to time."""
        self.decode_seconds += time.perf_counter() - began
        if self.decode_seconds >= self._reported + _REPORT:
            job.report(decode=self.decode_seconds - self._reported)
            self._reported = self.decode_seconds

    def _undecodable(self, in_job: int, error: Exception) -> DecodeError:
        index, name, source = in_job, None, self.job.source
        if self.lcache_kept is not None and in_job in self.lcache_kept:
            index = self.lcache_kept.index(in_job)
        try:
            name = self.job.names([in_job])[0]
        except Error:
            pass  # the error has the index
        which = f"sample {index}" if name is None else f"sample {index}, {name!r},"
        return decode_error(error, f"{which} of {source} can't be decoded: {type(error).__name__}: {error}", index, name, source)

    def _decoded(self, parts: dict[str, bytes], batch: Any, i: int) -> Any:
        """The result of decode for sample i of a batch."""
        data = first_part(parts)
        if self.decode is None:
            return data, batch.labels[i]
        assert callable(self.decode)
        return self.decode(data, Sample(batch, i, parts))


def _pairs(batch: Batch) -> Iterator[tuple[bytes, int]]:
    """(bytes, label) of each sample."""
    labels = batch.labels.tolist()
    return zip(batch.copies(), labels)

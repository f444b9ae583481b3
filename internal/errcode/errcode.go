// Package errcode numbers the errors of lcache, so that programs and people can name one without its text.
//
// Table lists all codes. Texts of errors may change in each release; a code keeps its meaning. A new code takes the next number. A row stays in the table when nothing uses its code any
// longer, so that no number gets a second meaning. docs/errors.md is written from the table. The package has no state.
package errcode

import (
	"errors"
	"fmt"
)

// A Code is "LC" and three digits.
type Code string

// The codes, in the order of their numbers: first the codes of ERROR frames, then the codes of commands.
const (
	Sample          Code = "LC001"
	SampleNotFound  Code = "LC002"
	SampleForbidden Code = "LC003"
	Timeout         Code = "LC004"
	Room            Code = "LC005"
	Late            Code = "LC006"
	Argument        Code = "LC007"
	TooLarge        Code = "LC008"
	Cancelled       Code = "LC009"
	Internal        Code = "LC010"
	Protocol        Code = "LC011"
	Denied          Code = "LC012"
	Closing         Code = "LC013"

	Usage             Code = "LC014"
	NotFound          Code = "LC015"
	NotPermitted      Code = "LC016"
	NotADirectory     Code = "LC017"
	NoSpace           Code = "LC018"
	ReadOnly          Code = "LC019"
	Interrupted       Code = "LC020"
	InUse             Code = "LC021"
	NotACache         Code = "LC022"
	CacheExists       Code = "LC023"
	CacheDamaged      Code = "LC024"
	Version           Code = "LC025"
	DamageFound       Code = "LC026"
	Memory            Code = "LC027"
	SourceEmpty       Code = "LC028"
	SourceChanged     Code = "LC029"
	SourceGone        Code = "LC030"
	SourceUnreachable Code = "LC031"
	Hung              Code = "LC032"
	PortInUse         Code = "LC033"
	Link              Code = "LC034"
	Untrusted         Code = "LC035"
	NoIOUring         Code = "LC036"
	ServerError       Code = "LC037"
	NoServer          Code = "LC038"
	UnfitDisk         Code = "LC039"
	SourceInvalid     Code = "LC040"
	Failed            Code = "LC041"
	OtherCache        Code = "LC042"
	BudgetTooSmall    Code = "LC043"
	NotRunnable       Code = "LC044"
	OutsideLinks      Code = "LC045"
	CacheUnfinished   Code = "LC046"
	NotServing        Code = "LC047"
	InputFile         Code = "LC048"
	CheckFailed       Code = "LC049"
)

// A Row describes a Code.
type Row struct {
	Code    Code
	Name    string // lower case, words separated by hyphens; for a code of Python the class
	Meaning string // one line: the cause
	Cure    string // one line: what to do
}

// pythonError is the first code of the exceptions of the Python package. The numbers before it are left for commands.
const pythonError Code = "LC050"

// ClusterKey is the first code of commands after the codes of Python.
const ClusterKey Code = "LC062"

// OtherCluster is the code of a running server that is not in the wanted cluster. The Python client has the same code for it.
const OtherCluster Code = "LC063"

// IsPython reports whether the code is that of a class of the Python package. A test there compares the classes with docs/errors.md.
func (r *Row) IsPython() bool { return r.Code >= pythonError && r.Code < ClusterKey }

// IsFrame reports whether an ERROR frame may carry the code.
func (r *Row) IsFrame() bool { return r.Code <= Closing }

// Table has a row for each code, in the order of their numbers.
var Table = []Row{
	{Sample, "sample", "a sample can't be read, and neither LC002 nor LC003 is the cause", "read the message: it has the source's own error"},
	{SampleNotFound, "sample-not-found", "the source no longer has a sample", "put the file back, or run `lcache ingest` to list the source again"},
	{SampleForbidden, "sample-forbidden", "the server's user may not read a sample", "give the server's user read permission, or start the server as another user"},
	{Timeout, "timeout", "the server reached its deadline for the request", "look at `lcache status`: a disk or the source may hang"},
	{Room, "room", "leases leave no room for the answer: request it with LEND", "release batches earlier, or give the server more `--memory`; lcache's Python client copies such batches automatically"},
	{Late, "late", "the temporary lease ended before COPIED", "nothing: lcache's Python client asks again"},
	{Argument, "argument", "the request is invalid for this job, and LC008 is not the cause", "read the message: it names the argument and its bounds"},
	{TooLarge, "too-large", "the answer needs more memory than the server has for one, or does not fit a frame: ask for fewer samples at once", "use smaller batches, or give the server more `--memory`"},
	{Cancelled, "cancelled", "a CANCEL named the request", "nothing: the client gave the request up"},
	{Internal, "internal", "a fault of the server, whose log has more", "report the server's log lines"},
	{Protocol, "protocol", "the client broke a rule of the protocol, or has another version of it", "install the Python client and the program of one release"},
	{Denied, "denied", "the client's user is not allowed", "start the server with `--socket-group`, or as the same user"},
	{Closing, "closing", "the server stops, or has no room for a frame: connect again", "nothing: lcache's Python client connects again"},

	{Usage, "usage", "a flag, a value, a variable or a combination of them is wrong", "read the message; `lcache COMMAND --help` lists the flags"},
	{NotFound, "not-found", "a file, a folder or a program does not exist", "check the path; on a machine of a cluster, check that the disk is mounted"},
	{NotPermitted, "not-permitted", "the user may not read or write a path", "change its permissions, or be another user"},
	{NotADirectory, "not-a-directory", "a file is where a directory should be", "give another path, or move the file"},
	{NoSpace, "no-space", "the disk or the quota has too little free space", "free some, give a smaller `--budget`, or another `--cache`"},
	{ReadOnly, "read-only", "the file system is mounted read-only", "mount it for writing, or give another `--cache`"},
	{Interrupted, "interrupted", "a signal ended the command", "run the same command again: it goes on where it stopped"},
	{InUse, "in-use", "another process uses the cache", "wait for it, or stop it with `lcache stop`"},
	{NotACache, "not-a-cache", "the directory has no cache of lcache", "check the path with `lcache ls`, or make the cache with `lcache ingest`"},
	{CacheExists, "cache-exists", "the directory has a cache already", "give another directory, or remove the cache with `lcache rm`"},
	{CacheDamaged, "cache-damaged", "a file of the cache has wrong contents", "run `lcache ingest` again: it keeps the valid parts"},
	{Version, "version", "the cache was made by a newer lcache, with a format that this one does not know", "install that version, or make the cache again with `lcache ingest`"},
	{DamageFound, "damage-found", "`lcache verify` found stored or source bytes that have changed", "see docs/operating.md, After exit code 3 of verify; training gets such samples from the source"},
	{Memory, "memory", "`--memory` is too small for this dataset and job", "give the size that the message names"},
	{SourceEmpty, "source-empty", "the source has no samples", "check the path, `--ext` and `--flat`"},
	{SourceChanged, "source-changed", "a file changed since the source was listed", "run `lcache ingest` again"},
	{SourceGone, "source-gone", "a file is gone since the source was listed", "put it back, or run `lcache ingest` again"},
	{SourceUnreachable, "source-unreachable", "a bucket or web server refused a request or did not answer", "check the address, the credentials and the network; the message has the server's answer"},
	{Hung, "hung", "a disk did not answer before the deadline", "check the kernel's log and the disk"},
	{PortInUse, "port-in-use", "another process listens on the address for metrics", "give another `--metrics` address"},
	{Link, "link", "the cache's directory is a link, or a link takes its place", "give the directory that the link points to"},
	{Untrusted, "untrusted", "a directory or a socket belongs to another user, or others may write it", "change its owner or its mode; the message names it"},
	{NoIOUring, "no-io-uring", "the kernel does not allow io_uring, and `--io uring` asks for it", "leave `--io` out: lcache uses pread then"},
	{ServerError, "server-error", "a running server answered with an error", "read the message, and the server's log"},
	{NoServer, "no-server", "no server answers at the socket", "start one with `lcache serve` or `lcache run`; `lcache ls` lists running servers"},
	{UnfitDisk, "unfit-disk", "the cache would be on a network file system or in memory", "give a `--cache` on a local SSD"},
	{SourceInvalid, "source-invalid", "a shard, a list, a file of labels or a name in the source is invalid", "correct the item that the message names"},
	{Failed, "failed", "a cause without a code of its own, which the message names", "read the message"},
	{OtherCache, "other-cache", "the directory has the cache of another source, endpoint, filter or set of directories, or is inside the source", "give another `--cache`, or the source and flags of that cache; `lcache ls` lists caches"},
	{BudgetTooSmall, "budget-too-small", "`--budget` has no room for something that the cache needs", "make the cache again with the `--budget` that the message names, or a larger one"},
	{NotRunnable, "not-runnable", "`lcache run` cannot run COMMAND, or `lcache demo` has no Python", "check the name of the program and its permissions"},
	{OutsideLinks, "outside-links", "samples are reached through links that leave the source, which is not allowed here", "put the files into the source, or give `--follow-links`"},
	{CacheUnfinished, "cache-unfinished", "the cache was not filled, or lost one of its directories", "run `lcache ingest`, or name all directories of the cache"},
	{NotServing, "not-serving", "the process has no server of this cache, or has ended", "`lcache ls` shows which process has which cache open"},
	{InputFile, "input-file", "a file of facts, a scenario or a trace has wrong contents", "make the file again as the message says"},
	{CheckFailed, "check-failed", "`lcache doctor` found that no cache can be in that directory, or a check of `lcache demo` failed", "follow the lines above the error"},

	{pythonError, "Error", "another cause, which the message names", "read the message"},
	{"LC051", "ArgumentError", "an argument does not fit this job or server: an unknown index, rank or epoch, too large a batch, options that contradict each other", "read the message: it names the argument and what to give"},
	{"LC052", "OSError", "the operating system refused a call; `errno` says why", "read the message: it has the path and the system's reason"},
	{"LC053", "FileNotFoundError", "a source, the folder of a cache, or the lcache program does not exist", "check the path; the program is the one on `PATH`, or the one that `LCACHE_BIN` names"},
	{"LC054", "NotADirectoryError", "a file is where a directory should be", "give another path, or move the file"},
	{"LC055", "PermissionError", "this user may not read the source, or may not write the cache", "change the permissions of the path that the message names, or give another `cache=`"},
	{"LC056", "ConnectionError", "no server answers at the socket, or the server ended and no other one started before the deadline", "start one with `lcache serve` or `lcache run`; `lcache ls` lists those that run"},
	{"LC057", "RefusedError", "the server or its socket belongs to another user", "give the socket of that server if you trust it, or start a server as this user"},
	{"LC058", "ProtocolError", "the server broke a rule of the protocol, or has another version of it", "install the Python client and the program of one release"},
	{"LC059", "SampleError", "a sample can't be used: it lacks the requested part, or has another size than its array", "correct or remove the file that the message names, or give another `part=`, `dtype=` or `shape=`"},
	{"LC060", "DecodeError", "`decode`, `decode_batch`, `loader` or a transform failed on a sample that was read", "read the original error in the message; correct the function, or the file that the message names"},
	{"LC061", "TimeoutError", "the server did not answer before the deadline, or another process kept a cache locked", "look at `lcache status` and the server's log; a slow source or disk may need a larger `timeout=`"},

	{ClusterKey, "cluster-key", "a key or a certificate of a cluster can't be used: others may read its file, or it is not valid", "make a key with `lcache cluster key > FILE` and run `chmod 600 FILE`; copy it to all machines. For certificates, read the reason in the message"},
	{OtherCluster, "other-cluster", "a server that runs already is in no cluster, or in one with another key", "stop that server, as the message says, so that the next one joins the cluster; or leave out `--cluster` or `cluster=`"},
}

// Of returns the code of the innermost error with a code in a chain: the cause, not the operation that failed.
func Of(err error) (code Code, ok bool) {
	for {
		var coded interface {
			error
			Code() Code
		}
		if !errors.As(err, &coded) {
			return code, ok
		}
		code, ok = coded.Code(), true
		if err = errors.Unwrap(coded); err == nil {
			return code, ok
		}
	}
}

type coded struct {
	error
	code Code
}

func (c *coded) Code() Code    { return c.code }
func (c *coded) Unwrap() error { return c.error }

// New is errors.New with a code.
func New(code Code, text string) error { return &coded{errors.New(text), code} }

// Errorf is fmt.Errorf with a code.
func Errorf(code Code, format string, args ...any) error {
	return &coded{fmt.Errorf(format, args...), code}
}

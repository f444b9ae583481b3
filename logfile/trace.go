package logfile

import "lcache/blockio"

// A change is one step towards the disk that a Store takes outside its arenas: those pass through blockio, which has a seam of its own.
type change struct {
	kind changeKind
	path string
	to   string // the new name of a changeRename
	off  int64  // where a changeWrite begins, and the new length of a changeTruncate
	data []byte // of a changeWrite; valid during the call
}

type changeKind uint8

const (
	changeCreate changeKind = iota // an empty file, also over an old one
	changeWrite
	changeTruncate
	changeSyncing // of a file or a directory, before it is tried
	changeSync    // when it has succeeded
	changeRename
	changeRemove
	changeSyncDir
)

// steps are what faults are injected by, see [blockio.InjectPlain].
var steps = map[changeKind]string{changeCreate: "create", changeWrite: "write", changeTruncate: "truncate", changeSyncing: "sync",
	changeRename: "rename", changeRemove: "remove"}

// tracer is told of each change just before it is made, and of a sync also when it has succeeded. An error is the change's: it is not made.
// Crash tests build from that what may be on disk at any moment; nil tells nobody.
type tracer func(c change) error

func (t tracer) tell(c change) error {
	if t == nil {
		return nil
	}
	return t(c)
}

// withFaults asks the engine's injected faults first.
func (t tracer) withFaults(io *blockio.IO) tracer {
	return func(c change) error {
		if step := steps[c.kind]; step != "" {
			if err := io.Plain(c.path, step); err != nil {
				return err
			}
		}
		return t.tell(c)
	}
}

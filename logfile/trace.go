package logfile

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
	changeSync
	changeRename
	changeRemove
	changeSyncDir
)

// tracer is told of each change just before it is made, and of a sync when it has succeeded. Crash tests build from that what may be
// on disk at any moment; nil, as always else, tells nobody.
type tracer func(c change)

func (t tracer) tell(c change) {
	if t != nil {
		t(c)
	}
}

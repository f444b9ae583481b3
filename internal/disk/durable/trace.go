package durable

// Trace receives each step towards the disk, before it is taken. If it returns an error, the step is not taken and fails with that error. It
// receives StepSynced and StepSyncedDir after a successful sync. A nil Trace does nothing.
type Trace func(c Change) error

// Report calls t, unless t is nil. Packages that change files by other means call it.
func (t Trace) Report(c Change) error {
	if t == nil {
		return nil
	}
	return t(c)
}

// Change is one step.
type Change struct {
	Step Step
	Path string
	To   string // of StepRename: the new path
	Off  int64  // of StepWrite: where Data begins; of StepTruncate: the new length of the file
	Data []byte // of StepWrite; valid during the call
}

// Step is a kind of change.
type Step uint8

const (
	StepCreate    Step = iota // an empty file, which replaces any old one
	StepWrite                 // some bytes of a file
	StepTruncate              // a file's length, shorter or longer
	StepSync                  // of a file or a directory, before the attempt
	StepSynced                // a file's bytes are durable
	StepSyncedDir             // a directory's names are durable
	StepRename                // to another name in the same directory
	StepRemove                // a file's name
)

func (s Step) String() string {
	return [...]string{"create", "write", "truncate", "sync", "synced", "synced directory", "rename", "remove"}[s]
}

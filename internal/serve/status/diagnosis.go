package status

// Diagnosis is a server's answer to DIAGNOSE: what helps to find a fault of the server, and is in no other document. It has names of files, users and
// machines, so only the server's own user gets it. All its parts are bounded.
type Diagnosis struct {
	GoVersion     string            `json:"go_version"`
	Args          []string          `json:"args"`         // of the process; the COMMAND of lcache run is left out, because its arguments may be secrets
	CommandArgs   int               `json:"command_args"` // number of the arguments that were left out
	Environment   map[string]string `json:"environment"`  // variables that begin with LCACHE_
	Secrets       []string          `json:"secrets"`      // names of the variables that were left out because their values may be secrets
	Log           []string          `json:"log"`          // the last log messages, each a JSON object, the oldest first
	LogDropped    int64             `json:"log_dropped"`  // older messages, which the server no longer has
	Goroutines    string            `json:"goroutines"`   // stacks of all goroutines, as text
	GoroutinesCut bool              `json:"goroutines_cut"`
	Heap          []byte            `json:"heap"` // a heap profile of pprof, compressed by gzip; empty: HeapError has the reason
	HeapError     string            `json:"heap_error,omitempty"`
}

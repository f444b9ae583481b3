package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"sync"
	"time"

	"lcache/cmd/lcache/internal/attach"
	"lcache/internal/serve/status"
	"lcache/internal/usage"
)

// server is a running server with the documents that it has given so far.
type server struct {
	*attach.Client
	folder    string
	diagnosis status.Diagnosis
	states    []json.RawMessage // status documents
	last      status.Document
	missing   []string
}

func begin(c *attach.Client, folder string) *server { return &server{Client: c, folder: folder} }

// sample asks all servers at once for their status, several times, and then once for their diagnosis, which costs them more.
func sample(ctx context.Context, servers []*server, times int, every time.Duration) error {
	for i := range times {
		if i > 0 && len(servers) > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(every):
			}
		}
		each(servers, func(s *server) {
			raw, last, err := s.Status()
			if err != nil {
				s.miss(fmt.Sprintf("status %d", i+1), err)
				return
			}
			s.states, s.last = append(s.states, raw), last
		})
	}
	each(servers, (*server).diagnose)
	return ctx.Err()
}

// each calls f for all servers at once.
func each(servers []*server, f func(*server)) {
	var all sync.WaitGroup
	for _, s := range servers {
		all.Go(func() { f(s) })
	}
	all.Wait()
}

func (s *server) diagnose() {
	if !s.CanDiagnose() {
		s.missing = append(s.missing, "log messages, profiles and settings: the server is of an earlier version, or of another user")
		return
	}
	var err error
	if s.diagnosis, err = s.Diagnose(); err != nil {
		s.miss("log messages, profiles and settings", err)
	}
	if s.diagnosis.HeapError != "" {
		s.missing = append(s.missing, "heap profile: "+s.diagnosis.HeapError)
	}
	if s.diagnosis.GoroutinesCut {
		s.missing = append(s.missing, "goroutines: only the first ones, because their stacks are longer than 2 MiB")
	}
}

func (s *server) miss(what string, err error) { s.missing = append(s.missing, what+": "+err.Error()) }

// description is the answer to HELLO. The names of classes may be many, so only their number is in it.
type description struct {
	status.Hello
	ClassCount int `json:"class_count"`
}

// parts returns what the server has given.
func (s *server) parts() []part {
	info := description{Hello: s.Info(), ClassCount: len(s.Info().Classes)}
	info.Classes = nil
	about := processOf(info.Version, info.Pid, s.diagnosis)
	about.Socket, about.Missing = s.Path(), s.missing
	parts := []part{
		{name: s.folder + "process.json", about: "version, command line and environment of the server", doc: about, of: processTable},
		{name: s.folder + "description.json", about: "dataset, job and listing", doc: info, of: helloTable},
	}
	for i, raw := range s.states {
		parts = append(parts, part{name: fmt.Sprintf("%sstatus-%d.json", s.folder, i+1), about: "status document, with the latest events", raw: raw, of: statusTable})
	}
	if len(s.diagnosis.Log) > 0 {
		parts = append(parts, part{name: s.folder + "log.jsonl", about: "the last log messages", log: s.diagnosis.Log})
	}
	if s.diagnosis.Goroutines != "" {
		parts = append(parts, part{name: s.folder + "goroutines.txt", about: "what each goroutine does", stacks: s.diagnosis.Goroutines})
	}
	if len(s.diagnosis.Heap) > 0 {
		parts = append(parts, part{name: s.folder + "heap.pb.gz", about: "heap profile, for go tool pprof", profile: s.diagnosis.Heap})
	}
	return parts
}

// learnMachine learns the names of this machine, and of its user.
func (r *redactor) learnMachine() {
	if host, err := os.Hostname(); err == nil {
		r.learnAll([]string{host}, aHost)
	}
	people := []string{os.Getenv("USER"), os.Getenv("LOGNAME")}
	if u, err := user.Current(); err == nil {
		people = append(people, u.Username, u.Name)
	}
	for _, name := range people {
		r.names.person("user", name)
	}
}

// learnAll learns names of one class.
func (r *redactor) learnAll(all []string, of class) {
	for _, name := range all {
		r.string(usage.UTF8(name), of)
	}
	r.spaced = r.names.spacedNames()
}

// compact returns JSON on one line.
func compact(doc []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, doc) != nil {
		return nil // document has parsed it
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// readme is the member that says what the bundle is.
const readme = "README.txt"

func readmeText(o Options, servers int) string {
	text := fmt.Sprintf("A bundle of lcache %s, made %s.\n\n", o.Version, time.Now().UTC().Format(time.RFC3339))
	if o.KeepNames {
		text += "REDACTED: no. Names of samples, users, hosts, buckets and paths are in it, because it was made with --no-redact.\n" +
			"Credentials in addresses, tokens, and the command line of a training are left out.\n"
	} else {
		text += "REDACTED: yes. Names of samples, users, hosts, buckets, paths, datasets and jobs are replaced by placeholders such as\n" +
			"host-2. The same name has the same placeholder everywhere in this bundle, and another one in another bundle.\n" +
			"In sentences, each word that lcache does not write itself is replaced. Numbers stay.\n" +
			"Credentials in addresses, tokens, and the command line of a training are left out.\n"
	}
	text += fmt.Sprintf("\nServers that answered: %d. Servers that run and did not answer: %d.\n", servers, len(o.Silent))
	if len(o.Servers) > servers {
		text += fmt.Sprintf("Servers that were left out: %d.\n", len(o.Servers)-servers)
	}
	return text
}

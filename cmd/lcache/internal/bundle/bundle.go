// Package bundle makes and reads bundles: archives with what is needed to find a fault of a server from afar.
//
// Collect asks servers for their documents, and returns a Bundle, which is in memory. By default the names of samples, users, hosts, buckets and paths in it are
// replaced by placeholders; credentials are left out in any case. Write writes the archive. Read reads an archive that anybody may have made: it is bounded,
// and writes nothing to the disk. The package sends nothing anywhere.
//
// A Bundle is not for concurrent use.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"time"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/status"
	"lcache/internal/usage"
)

// Options of Collect.
type Options struct {
	Version   string           // of this program
	Servers   []*attach.Client // that are running; their connections stay open
	Silent    []string         // descriptions of servers that run and do not answer
	Process   status.Diagnosis // of this process: its command line and environment
	Report    *doctor.Report   // on this machine
	KeepNames bool             // replace no names
	Words     []string         // that flags take: commands, and choices such as auto

	Samples int           // of the status
	Every   time.Duration // time between two of them
}

// A Bundle is the content of an archive.
type Bundle struct {
	Members  []Member
	Redacted bool
}

// A Member is one file of a bundle.
type Member struct {
	Name  string `json:"name"` // with slashes
	About string `json:"about"`
	Data  []byte `json:"-"`
}

// mostServers is the most servers in one bundle.
const mostServers = 16

// part is a member before redaction.
type part struct {
	name, about string
	doc         any   // of JSON; nil: one of the following
	of          table // of doc
	raw         json.RawMessage
	log         []string
	stacks      string
	profile     []byte
	text        string // as it is
}

// process is the document about one process.
type process struct {
	Version     string            `json:"version"`
	GoVersion   string            `json:"go_version"`
	Pid         int               `json:"pid"`
	Socket      string            `json:"socket,omitempty"`
	Arguments   []string          `json:"arguments"`
	CommandArgs int               `json:"command_arguments_left_out"`
	Environment map[string]string `json:"environment"`
	LeftOut     []string          `json:"left_out"` // variables that may be secrets
	LogDropped  int64             `json:"log_dropped"`
	Missing     []string          `json:"missing,omitempty"` // parts that could not be had, and why
}

func processOf(version string, pid int, d status.Diagnosis) process {
	return process{Version: version, GoVersion: d.GoVersion, Pid: pid, Arguments: d.Args, CommandArgs: d.CommandArgs, Environment: d.Environment, LeftOut: d.Secrets, LogDropped: d.LogDropped}
}

// Collect collects the content of a bundle. A server that ends meanwhile is noted in it. Its only errors are the context's and a document that can't be redacted.
func Collect(ctx context.Context, o Options) (*Bundle, error) {
	r := &redactor{names: newNames(), raw: o.KeepNames, ours: map[string]bool{}}
	r.allow(o.Words...)
	r.allow(wordsOfVersion(o.Version)...)
	r.learnMachine()
	parts := []part{
		{name: "doctor.json", about: "the process that made this bundle", doc: processOf(o.Version, os.Getpid(), o.Process), of: processTable},
		{name: "machine.json", about: "kernel, memory, file systems and disks", doc: o.Report, of: machineTable},
	}
	servers := o.Servers[:min(len(o.Servers), mostServers)]
	var states []*server
	for i, c := range servers {
		states = append(states, begin(c, fmt.Sprintf("server-%d/", i+1)))
		r.learnAll(c.Info().Classes, aClass)
		r.allow(wordsOfVersion(c.Info().Version)...)
	}
	if err := sample(ctx, states, max(o.Samples, 1), o.Every); err != nil {
		return nil, err
	}
	for _, s := range states {
		parts = append(parts, s.parts()...)
	}
	parts = append([]part{{name: readme, about: "what this bundle has, and what was replaced", text: readmeText(o, len(servers))}}, parts...)
	return r.bundle(parts)
}

// bundle redacts the parts.
func (r *redactor) bundle(parts []part) (*Bundle, error) {
	for i := range parts {
		p := &parts[i]
		if p.doc != nil {
			doc, err := jsonbytes.Marshal(p.doc)
			if err != nil {
				return nil, fmt.Errorf("encode %s: %w", p.name, err)
			}
			p.raw = doc
		}
		switch {
		case p.raw != nil:
			r.learn(p.raw, p.of)
		case p.log != nil:
			for _, line := range p.log {
				r.learn([]byte(line), logTable)
			}
		}
	}
	r.known = maps.Clone(r.names.placeholders)
	b := &Bundle{Redacted: !r.raw}
	for _, p := range parts {
		data, err := r.part(p)
		if err != nil {
			return nil, fmt.Errorf("redact %s: %w", p.name, err)
		}
		b.Members = append(b.Members, Member{p.name, p.about, data})
	}
	defer b.bound(most)
	if r.raw {
		return b, nil
	}
	rest := r.rest()
	for i, m := range b.Members {
		if m.Name != readme && !strings.HasSuffix(m.Name, ".gz") {
			b.Members[i].Data = []byte(rest.Replace(string(m.Data)))
		}
	}
	return b, nil
}

// bound replaces members that Read would refuse by a sentence.
func (b *Bundle) bound(l limits) {
	left := l.total / 2 // headers and padding take less than the other half
	for i, m := range b.Members {
		if size := int64(len(m.Data)); size > min(l.member, left) {
			b.Members[i].Name, b.Members[i].Data = strings.ReplaceAll(m.Name, ".", "-")+".txt", []byte(fmt.Sprintf("left out, because it has %d bytes\n", size))
		} else {
			left -= size
		}
	}
}

// part returns the redacted bytes of one part.
func (r *redactor) part(p part) ([]byte, error) {
	switch {
	case p.raw != nil:
		return r.document(p.raw, p.of)
	case p.log != nil:
		return r.log(p.log)
	case p.profile != nil:
		return r.profile(p.profile)
	case p.stacks != "":
		return []byte(r.stacks(p.stacks)), nil
	}
	return []byte(p.text), nil
}

// log returns log messages, one line each.
func (r *redactor) log(lines []string) ([]byte, error) {
	var out []byte
	for _, line := range lines {
		doc, err := r.document([]byte(line), logTable)
		if err != nil {
			return nil, err
		}
		out = append(out, compact(doc)...)
	}
	return out, nil
}

// Write writes the archive to a new file that only this user can read. It never replaces a file.
func (b *Bundle) Write(path string) (size int64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return 0, usage.Errorf("--bundle %s: it exists: give another name", path)
	}
	if err != nil {
		return 0, fmt.Errorf("write the bundle: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(path)
			err = fmt.Errorf("write the bundle %s: %w", path, err)
		}
	}()
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	now := time.Now()
	for _, m := range b.Members {
		if err := t.WriteHeader(&tar.Header{Name: m.Name, Mode: 0o600, Size: int64(len(m.Data)), ModTime: now}); err != nil {
			return 0, err
		}
		if _, err := t.Write(m.Data); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(t.Close(), z.Close(), f.Sync()); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

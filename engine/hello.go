package engine

import (
	"cmp"
	"os"

	"lcache/deliver"
	"lcache/source"
)

// Info is what a client is told when it attaches.
type Info struct {
	Protocol    int      `json:"protocol"`
	Pid         int      `json:"pid"`
	Version     string   `json:"version"`
	Server      string   `json:"server"`
	Token       string   `json:"token"`
	Name        string   `json:"name"`
	Source      string   `json:"source"`
	Fingerprint string   `json:"fingerprint"`
	Samples     int      `json:"samples"`
	Epochs      int      `json:"epochs"`
	BatchSize   int      `json:"batch_size"`
	World       int      `json:"world"`
	Ranks       []int    `json:"ranks"`
	DropLast    bool     `json:"drop_last"`
	Recipe      string   `json:"recipe"`
	Seed        string   `json:"seed"`
	Classes     []string `json:"classes"`
	Parts       bool     `json:"parts"` // samples have parts: ask for them
	MemoryBytes int64    `json:"memory_bytes"`
	CreditBytes int64    `json:"credit_bytes"`
	OnError     string   `json:"on_error"`
	Features    []string `json:"features"` // what this server understands beyond the first version of the protocol

	Params  map[string]string `json:"params"`
	Listing Listing           `json:"listing"`
}

// Listing is what the server's manifest lists, so that a client can tell whether it is what its program names.
type Listing struct {
	Identity   string        `json:"identity"` // of the source: source.Identity
	Exts       []string      `json:"ext"`      // as --ext; empty: all files
	Flat       bool          `json:"flat"`
	Group      string        `json:"group"`                // "none" or "stem"
	Labels     string        `json:"labels"`               // a file; "": the folders' labels
	FirstPart  string        `json:"first_part,omitempty"` // as --part
	Extensions source.Counts `json:"extensions"`           // of the files listed; null: not counted

	S3Endpoint string `json:"s3_endpoint"` // of a bucket that is not at AWS; "": AWS, or no bucket

	FollowLinks  bool `json:"follow_links"`
	OutsideLinks int  `json:"outside_links"` // samples that are reached through links that leave the source
}

// Attach begins or resumes a session for a process.
func (e *Engine) Attach(pid int, token string) (*deliver.Client, Info, error) {
	c, err := e.deliver.Attach(pid, token)
	if err != nil {
		return nil, Info{}, err
	}
	j := e.cache.Record.Job
	return c, Info{Protocol: 1, Pid: os.Getpid(), Version: e.opts.Version, Server: e.server, Token: c.Token, Name: e.cache.Name(), Source: e.cache.Record.Source,
		Fingerprint: e.cache.Manifest.Fingerprint().String(), Samples: e.cache.Manifest.Len(), Epochs: j.Epochs, BatchSize: j.BatchSize, World: j.World,
		Ranks: e.cache.Schedule.Local(), DropLast: j.DropLast, Recipe: j.Recipe, Seed: j.Seed, Classes: e.cache.Manifest.Classes(), Parts: e.cache.Manifest.HasParts(),
		MemoryBytes: e.staging.Bytes(), CreditBytes: int64(e.cache.Sizing.Credit) / int64(max(1, len(e.cache.Schedule.Local()))), OnError: e.opts.OnError, Features: []string{"report", "lend", "labels", "jobs", "importance"},
		Params: j.Params, Listing: e.listing()}, nil
}

func (e *Engine) listing() Listing {
	j := e.cache.Record
	l := Listing{Identity: e.cache.Source.Identity(), Exts: j.Exts, Flat: j.Flat, Group: cmp.Or(j.Group, "none"), Labels: j.Labels, FirstPart: j.FirstPart, S3Endpoint: j.Remote.S3.Endpoint,
		FollowLinks: j.FollowLinks, OutsideLinks: j.OutsideLinks}
	if j.Counted != nil {
		l.Extensions = j.Counted.Files
	}
	return l
}

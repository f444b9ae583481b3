package engine

import (
	"cmp"
	"os"

	"lcache/deliver"
	"lcache/internal/serve/status"
)

// Attach begins or resumes a session for a process.
func (e *Engine) Attach(pid int, token string) (*deliver.Client, status.Hello, error) {
	c, err := e.deliver.Attach(pid, token)
	if err != nil {
		return nil, status.Hello{}, err
	}
	j := e.cache.Record.Job
	return c, status.Hello{Protocol: 1, Pid: os.Getpid(), Version: e.opts.Version, Server: e.server, Token: c.Token, Name: e.cache.Name(), Source: e.cache.Record.Source,
		Fingerprint: e.cache.Manifest.Fingerprint().String(), Samples: e.cache.Manifest.Len(), Epochs: j.Epochs, BatchSize: j.BatchSize, World: j.World,
		Ranks: e.cache.Schedule.Local(), DropLast: j.DropLast, Recipe: j.Recipe, Seed: j.Seed, Classes: e.cache.Manifest.Classes(), Parts: e.cache.Manifest.HasParts(),
		MemoryBytes: e.staging.Bytes(), CreditBytes: int64(e.cache.Sizing.Credit) / int64(max(1, len(e.cache.Schedule.Local()))), OnError: e.opts.OnError, Features: []string{"report", "lend", "labels", "jobs", "importance"},
		Params: j.Params, Listing: e.listing()}, nil
}

func (e *Engine) listing() status.Listing {
	j := e.cache.Record
	l := status.Listing{Identity: e.cache.Source.Identity(), Exts: j.Exts, Flat: j.Flat, Group: cmp.Or(j.Group, "none"), Labels: j.Labels, FirstPart: j.FirstPart, S3Endpoint: j.Remote.S3.Endpoint,
		FollowLinks: j.FollowLinks, OutsideLinks: j.OutsideLinks}
	if j.Counted != nil {
		l.Extensions = j.Counted.Files
	}
	return l
}

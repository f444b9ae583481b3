package resort

import (
	"context"
	"errors"
	"fmt"

	"lcache/chunker"
	"lcache/internal/store/cache"
	"lcache/internal/store/mover"
	"lcache/logfile"
	"lcache/reorder"
)

// Empty moves what lies in packages to a Logfile that is laid out by a line, and removes the packages once nothing is left in them. What finds no room there becomes a miss. An error leaves the rest in
// packages.
func Empty(ctx context.Context, c *cache.Cache, to *logfile.Logfile, line *chunker.Line) error {
	p := c.Store.Packages()
	if p == nil {
		return nil
	}
	m, err := mover.New(c, mover.Options{})
	if err != nil {
		return err
	}
	s := &sort{Mover: m, tgt: &reorder.EpochLog{Epoch: -1, Log: to, Line: line}}
	if err = s.Register(to); err == nil {
		err = s.Aim(s.tgt)
	}
	if err == nil {
		err = s.pass(ctx, &reorder.EpochLog{Epoch: -1, Log: p.Log(), Packages: p}, p.Finished())
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	closeErr := m.Close(stop)
	if closeErr == nil { // after an error a load may still route
		s.tgt.EndRouting() // the line is the caller's
	}
	if err == nil && closeErr == nil {
		if err = to.Seal(ctx); err == nil { // as long as the packages' journal is there, a kill loses only what has been written over since
			err = s.dropPackages()
		}
	}
	if err = errors.Join(err, closeErr); err != nil {
		return fmt.Errorf("empty the packages: %w", err)
	}
	return nil
}

// emptyPackages moves the samples of packages to tgt, unless the packages belong to an earlier manifest.
func (s *sort) emptyPackages(ctx context.Context) error {
	p := s.Cache.Store.Packages()
	if p == nil || p.Log().IsOlder() {
		return nil
	}
	return s.pass(ctx, &reorder.EpochLog{Epoch: -1, Log: p.Log(), Packages: p}, p.Finished())
}

// dropPackages removes the packages if nothing is left in them.
func (s *sort) dropPackages() error {
	p := s.Cache.Store.Packages()
	if p == nil || !p.Log().Empty() {
		return nil
	}
	return s.Cache.Store.DropPackages()
}

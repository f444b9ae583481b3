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

// Empty moves samples from packages to a Logfile with an epoch layout, and removes the packages when they are empty. Samples without room
// become misses. After an error the other samples stay in packages.
func Empty(ctx context.Context, c *cache.Cache, to *logfile.Logfile, layout *chunker.EpochLayout) error {
	p := c.Store.Packages()
	if p == nil {
		return nil
	}
	m, err := mover.New(c, mover.Options{})
	if err != nil {
		return err
	}
	s := &sort{Mover: m, tgt: &reorder.EpochLog{Epoch: -1, Log: to, Layout: layout}}
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
		s.tgt.EndRouting() // the layout belongs to the caller
	}
	if err == nil && closeErr == nil {
		if err = to.Seal(ctx); err == nil { // while the packages' journal exists, a kill loses only the bytes that were overwritten since
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

// dropPackages removes the packages if they are empty.
func (s *sort) dropPackages() error {
	p := s.Cache.Store.Packages()
	if p == nil || !p.Log().Empty() {
		return nil
	}
	return s.Cache.Store.DropPackages()
}

package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lcache/cmd/lcache/internal/monitor"
	"lcache/internal/errcode"
	"lcache/internal/serve/status"
	"lcache/internal/store/cachedir"
	"lcache/internal/usage"
	"lcache/logfile"
)

// takeOverTime bounds the wait for the end of the server that is taken over, and for a client that is just starting one.
const takeOverTime = StopTime + 10*time.Second

// open opens the address of the metrics, and then the cache: an address that is in use must stop no server. warning says why an embedded server has no metrics.
func (o ServeOptions) open(ctx context.Context) (l *local, m *monitor.Server, warning string, err error) {
	m, err = listenMetrics(o.Metrics, o.Logger)
	if err != nil && o.Embedded {
		warning = noMetrics(o.Metrics.Addr, err)
		o.Logger.Warn(warning)
		err = nil
	}
	switch {
	case o.TakeOver:
		l, m, err = o.takeOver(ctx, m, err)
	case err == nil:
		if l, err = start(ctx, o); err != nil {
			err = o.advise(err)
		}
	}
	if err != nil {
		err = errors.Join(err, m.Shutdown(ctx))
	}
	return l, m, warning, err
}

// noMetrics says why an embedded server serves no metrics.
func noMetrics(addr string, err error) string {
	used, reason := new(monitor.InUseError), errors.Unwrap(err).Error() // without the advice, which names a flag
	switch isUsed := errors.As(err, &used); {
	case isUsed && used.Pid != 0:
		reason = fmt.Sprintf("process %d listens there", used.Pid)
	case isUsed:
		reason = "another process listens there"
	}
	return fmt.Sprintf("no metrics at %s: %s: give LCACHE_METRICS another address, or leave it out", addr, reason)
}

// advise adds to the error of a cache in use that the server which has it can be taken over.
func (o ServeOptions) advise(err error) error {
	busy := new(logfile.BusyError)
	if o.Embedded || !errors.As(err, &busy) {
		return err
	}
	a := findServer(o.Registry, o.Version, busy.Pid, o.Engine.Dirs)
	if a == nil {
		return err
	}
	defer a.client.Close()
	if !a.client.Info().Embedded {
		return err
	}
	return errcode.Errorf(errcode.InUse, "%s is in use by process %d, the server that a training started: put this one in its place with %s", busy.Dir, busy.Pid, takeOverCommand(o.Engine.Dirs))
}

// takeOverCommand is the command that takes the cache in dirs over, for a shell.
func takeOverCommand(dirs []string) string {
	return "lcache serve --take-over --cache " + usage.ShellWord(strings.Join(dirs, ","))
}

// takeOver stops the embedded server that has the cache, if one has, and opens the cache in its place. m listens for metrics, unless taken is the error of that. Until
// this process listens, no client starts a server of its own.
func (o ServeOptions) takeOver(ctx context.Context, m *monitor.Server, taken error) (*local, *monitor.Server, error) {
	waiting, cancel := context.WithTimeout(ctx, takeOverTime)
	defer cancel()
	for {
		lock, err := o.stopEmbedded(waiting, taken)
		if err == nil && taken != nil {
			m, err = listenMetrics(o.Metrics, o.Logger)
		}
		taken = err
		var l *local
		if err == nil {
			l, err = start(ctx, o)
		}
		lock.Close()
		if !errors.As(err, new(*logfile.BusyError)) || waiting.Err() != nil { // busy: a client that had the lock started a server
			return l, m, err
		}
	}
}

// stopEmbedded returns when no process has the cache. It returns the lock that keeps clients from starting a server, nil if a client has that lock: one that waits
// for another server. It refuses servers that no training started. taken is the error of an address for metrics that the server must have.
func (o ServeOptions) stopEmbedded(ctx context.Context, taken error) (lock *cachedir.ClientLock, err error) {
	dir := o.Engine.Dirs[0]
	for {
		c, err := cachedir.Look(dir)
		if err != nil {
			return nil, taken // opening the cache reports the problem
		}
		if lock, err = cachedir.TakeClientLock(dir, "taking over the cache"); err != nil {
			return nil, err
		}
		if c.Pid == 0 {
			return lock, taken
		}
		isStopped, err := o.stopHolder(ctx, c.Pid, lock != nil, taken)
		if err != nil || isStopped {
			return lock, err
		}
		lock.Close()
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, errSilent(c.Pid, dir)
		}
	}
}

// stopHolder stops the process that has the cache, if that is an embedded server. It returns false if the process has no server, as when it is just ending or
// starting, and if mayStop is false.
func (o ServeOptions) stopHolder(ctx context.Context, pid int, mayStop bool, taken error) (isStopped bool, err error) {
	a := findServer(o.Registry, o.Version, pid, o.Engine.Dirs)
	if a == nil {
		return false, nil
	}
	defer a.client.Close()
	dir := o.Engine.Dirs[0]
	held := new(monitor.InUseError)
	switch info := a.client.Info(); {
	case !isStoppable(info):
		return false, errcode.Errorf(errcode.InUse, "%s is in use by process %d, whose server is a part of that program, as of lcache run: end it first", dir, pid)
	case !info.Embedded:
		return false, errcode.Errorf(errcode.InUse, "%s is in use by process %d, a server that no training started: stop it first, with lcache stop %d", dir, pid, pid)
	case info.OnError != o.Engine.OnError:
		return false, fmt.Errorf("%s is served with --on-error %s, which the training relies on: give the same flag", dir, info.OnError)
	case taken != nil && (!errors.As(taken, &held) || held.Pid != pid):
		return false, taken
	case !mayStop:
		return false, nil
	}
	o.Logger.Info("taking over the cache", "dir", dir, "pid", pid)
	if err := a.stop(ctx, dir); err != nil {
		if c, lookErr := cachedir.Look(dir); lookErr != nil || c.Pid == pid {
			return false, err
		}
		return false, nil // it had just ended
	}
	return true, nil
}

func isStoppable(info status.Hello) bool { return slices.Contains(info.Features, "stop") }

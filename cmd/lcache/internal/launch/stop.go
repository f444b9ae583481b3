package launch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lcache/cmd/lcache/internal/attach"
	"lcache/internal/errcode"
	"lcache/internal/serve/status"
	"lcache/internal/store/cachedir"
	"lcache/internal/usage"
)

// StopOptions of Stop. With neither Dir nor Pid the only server of this user is meant.
type StopOptions struct {
	Dir      string // of its cache, absolute; "": not given
	Pid      int    // 0: not given
	Registry string // folder of this user's servers: see package attach
	Version  string // of this program
}

// Stopped is a server that has ended.
type Stopped struct {
	Name string   `json:"name"`
	Pid  int      `json:"pid"`
	Dirs []string `json:"cache"`

	Embedded bool   `json:"embedded,omitempty"` // a training had started it for itself
	Training []int  `json:"training,omitempty"` // processes that read an epoch from it, and still run
	Socket   string `json:"-"`                  // where it listened
}

// TakeOver is the command that serves the cache in place of the server that a training starts again.
func (s *Stopped) TakeOver() string { return takeOverCommand(s.Dirs) }

// Stop asks a server to end, as SIGTERM does, and returns when its process is gone. It asks over the socket and sends no signal, so it can't hit a process
// that has got the number of one that ended. Before that it makes sure that the process holds the cache's lock.
func Stop(ctx context.Context, o StopOptions) (*Stopped, error) {
	pid, dirs, err := o.find()
	if err != nil {
		return nil, err
	}
	a, err := o.connect(pid, dirs)
	if err != nil {
		return nil, err
	}
	defer a.client.Close()
	ctx, cancel := context.WithTimeout(ctx, StopTime+10*time.Second)
	defer cancel()
	if err := a.stop(ctx, dirs[0]); err != nil {
		return nil, err
	}
	return &Stopped{Name: a.began.Jobs[0].Name, Pid: pid, Dirs: a.began.Cache.Dirs, Embedded: a.client.Info().Embedded, Training: training(a.began), Socket: a.client.Path()}, nil
}

// connect connects to the server of a process, after it has made sure that the process holds the cache's lock.
func (o StopOptions) connect(pid int, dirs []string) (*attached, error) {
	c, err := cachedir.Look(dirs[0])
	switch {
	case err != nil:
		return nil, err
	case c.Pid != pid:
		return nil, errcode.Errorf(errcode.NotServing, "process %d does not have %s open: lcache ls shows which one does", pid, dirs[0])
	}
	a := findServer(o.Registry, o.Version, pid, dirs)
	if a == nil {
		return nil, errSilent(pid, dirs[0])
	}
	return a, nil
}

func errSilent(pid int, dir string) error {
	return errcode.Errorf(errcode.NotServing, "process %d has %s open and answers on no socket: it may be an ingest, or just ending; wait, or end that program", pid, dir)
}

// stop asks the server to end, and returns when its process has ended. dir is the first directory of its cache.
func (a *attached) stop(ctx context.Context, dir string) error {
	p, err := openProcess(a.pid)
	if err != nil {
		return err
	}
	defer p.close()
	// The number belongs to one process while p is open. That process is the server, if the server has the number now.
	if _, now, err := a.client.Status(); err != nil || now.Pid != a.pid {
		return errcode.Errorf(errcode.NotServing, "process %d has ended", a.pid)
	}
	if err := a.client.Stop(); err != nil {
		return err
	}
	if err := p.wait(ctx, dir); err != nil {
		return fmt.Errorf("process %d was asked to stop, and still has %s open: %w", a.pid, dir, err)
	}
	return nil
}

// training lists the processes that read an epoch in a status, and still run. One that has had all of its job's epochs is not listed.
func training(s status.Document) []int {
	pids := []int{}
	for _, j := range s.Jobs {
		if j.Ended {
			continue
		}
		for _, r := range j.Ranks {
			isOver := r.Finished && j.Epochs > 0 && r.Epoch >= j.Epochs-1
			if r.Pid > 0 && !isOver && !slices.Contains(pids, r.Pid) && !errors.Is(unix.Kill(r.Pid, 0), unix.ESRCH) {
				pids = append(pids, r.Pid)
			}
		}
	}
	slices.Sort(pids)
	return pids
}

// find returns the process that is meant, and the directories of its cache.
func (o StopOptions) find() (pid int, dirs []string, err error) {
	if o.Dir != "" {
		c, err := cachedir.Look(o.Dir)
		switch within := cachedir.Within(o.Dir); {
		case errors.Is(err, cachedir.ErrNotCache) && within != "":
			return 0, nil, errcode.Errorf(errcode.NotACache, "%s is not a cache, it holds caches: give one of %s", o.Dir, within)
		case err != nil:
			return 0, nil, err
		case c.Pid == 0:
			return 0, nil, errcode.Errorf(errcode.NotServing, "no process has %s open: there is nothing to stop", o.Dir)
		}
		return c.Pid, []string{o.Dir}, nil
	}
	entries, err := attach.Registered(o.Registry)
	if err != nil {
		return 0, nil, err
	}
	entries = slices.DeleteFunc(entries, func(e attach.Entry) bool { return len(e.Cache) == 0 || o.Pid != 0 && e.PID != o.Pid || !holdsLock(e) })
	switch {
	case len(entries) == 0 && o.Pid != 0:
		return 0, nil, errcode.Errorf(errcode.NoServer, "process %d is not an lcache server of this user: lcache ls lists running servers", o.Pid)
	case len(entries) == 0:
		return 0, nil, errcode.New(errcode.NoServer, "no server of this user runs: there is nothing to stop")
	case len(entries) > 1 && o.Pid == 0:
		var known []string
		for _, e := range entries {
			known = append(known, fmt.Sprintf("%d (%s)", e.PID, strings.Join(e.Cache, ",")))
		}
		return 0, nil, usage.Errorf("several servers run: say which one to stop, %s", strings.Join(known, " or "))
	}
	dirs = slices.Clone(entries[0].Cache)
	if dirs[0], err = filepath.Abs(dirs[0]); err != nil {
		return 0, nil, fmt.Errorf("working directory: %w", err)
	}
	return entries[0].PID, dirs, nil
}

// holdsLock reports whether a server of the registry has its cache still: a server that was killed leaves its file there, and its number may be another
// process's by now.
func holdsLock(e attach.Entry) bool {
	c, err := cachedir.Look(e.Cache[0])
	return err == nil && c.Pid == e.PID
}

// process is one process, whatever becomes of its number.
type process struct {
	pid int
	fd  int // a pidfd; negative: the kernel has none
}

func openProcess(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, errcode.Errorf(errcode.NotServing, "process %d has ended", pid)
	}
	if err != nil {
		fd = -1
	}
	return &process{pid, fd}, nil
}

func (p *process) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
	}
}

// wait returns when the process has ended. Without a pidfd it returns when the process has given up the cache in dir.
func (p *process) wait(ctx context.Context, dir string) error {
	for {
		if p.fd >= 0 {
			fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, 100); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
		} else {
			if c, err := cachedir.Look(dir); err != nil || c.Pid != p.pid {
				return nil
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

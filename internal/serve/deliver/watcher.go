package deliver

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher calls gone when a client's process ends. A pidfd becomes readable at that moment, and never refers to a later process with
// the same pid. One goroutine waits for all of them.
type watcher struct {
	epoll, wake int
	gone        func(*Client)
	done        chan struct{}

	mu      sync.Mutex // guards the fields that follow
	serial  int32
	clients map[int32]*Client // by the number in its epoll event, because an fd may be reused before its last event is handled
	pidfds  map[*Client]watched
}

type watched struct {
	serial int32
	fd     int
}

func newWatcher(gone func(*Client)) (*watcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	w := &watcher{epoll: epoll, wake: wake, gone: gone, done: make(chan struct{}), clients: map[int32]*Client{}, pidfds: map[*Client]watched{}}
	if err := w.listen(wake, 0); err != nil {
		unix.Close(epoll)
		unix.Close(wake)
		return nil, err
	}
	go w.run()
	return w, nil
}

func (w *watcher) listen(fd int, serial int32) error {
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: serial}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

func (w *watcher) add(c *Client) error {
	fd, err := unix.PidfdOpen(c.Pid, 0)
	if err != nil {
		return fmt.Errorf("watch process %d: %w", c.Pid, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serial++
	if err := w.listen(fd, w.serial); err != nil {
		unix.Close(fd)
		return err
	}
	w.clients[w.serial] = c
	w.pidfds[c] = watched{w.serial, fd}
	return nil
}

func (w *watcher) remove(c *Client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.pidfds[c]; ok {
		unix.Close(p.fd) // close also removes it from the epoll set
		delete(w.pidfds, c)
		delete(w.clients, p.serial)
	}
}

func (w *watcher) run() {
	defer close(w.done)
	events := make([]unix.EpollEvent, 16)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		for _, ev := range events[:n] {
			if ev.Fd == 0 {
				return
			}
			w.mu.Lock()
			c := w.clients[ev.Fd]
			w.mu.Unlock()
			if c != nil {
				w.gone(c)
				w.remove(c)
			}
		}
	}
}

func (w *watcher) close() {
	var one [8]byte
	one[0] = 1
	unix.Write(w.wake, one[:])
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pidfds {
		unix.Close(p.fd)
	}
	w.clients, w.pidfds = nil, nil
	unix.Close(w.epoll)
	unix.Close(w.wake)
}

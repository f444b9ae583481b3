package launch

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// signals are caught from the listing on, so that none ends lcache while COMMAND, which may ignore it, still needs its servers.
type signals struct {
	all   chan os.Signal
	first syscall.Signal // that ended the listing; 0: none
}

// catch leaves out what this process was told to ignore, as nohup does: COMMAND ignores it too.
func catch() *signals {
	s := &signals{all: make(chan os.Signal, 16)}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(sig) {
			signal.Notify(s.all, sig)
		}
	}
	return s
}

func (s *signals) stop() { signal.Stop(s.all) }

// cancelling ends the context with the first signal that means an end. release must be called before others read from s.
func (s *signals) cancelling(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(parent)
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case sig := <-s.all:
				if n, _ := sig.(syscall.Signal); n != syscall.SIGUSR1 && n != syscall.SIGUSR2 {
					s.first = n
					cancel()
				}
			case <-over:
				return
			}
		}
	}()
	return ctx, func() {
		close(over)
		<-gone
	}
}

// interrupted gives an error of the listing the exit code of the signal that caused it.
func (s *signals) interrupted(err error) error {
	if n := s.first; n != 0 && errors.Is(err, context.Canceled) {
		return &ExitError{exitSignal + int(n), errors.New("interrupted: what is stored stays; run the same command again to go on")}
	}
	return err
}

// fromTerminal reports whether a signal is one that the terminal sends to the whole foreground group, COMMAND included: sent on, it
// would come twice, and many programs take the second Ctrl-C for impatience.
func fromTerminal(sig os.Signal) bool {
	if sig != syscall.SIGINT && sig != syscall.SIGQUIT {
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

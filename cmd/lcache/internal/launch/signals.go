package launch

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// signals catches signals from the listing on, so that no signal ends the servers while the command, which may ignore the signal, needs them.
type signals struct {
	all   chan os.Signal
	first syscall.Signal // the signal that ended the listing; 0: none
	isOut bool           // SIGTERM came while the command ran: somebody wants this process to end soon
}

// catch catches all signals that lcache forwards to the command. Except: signals that this process ignores, for example after nohup, because
// the command ignores them, too.
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

// cancelling returns a context that the first signal ends, except for SIGUSR1 and SIGUSR2. The caller calls release before it reads from s.
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

// interrupted turns an error of the listing into an *ExitError, if a signal caused it.
func (s *signals) interrupted(err error) error {
	if n := s.first; n != 0 && errors.Is(err, context.Canceled) {
		return &ExitError{exitSignal + int(n), errors.New("interrupted: stored samples stay in the cache; run the same command again to continue")}
	}
	return err
}

// fromTerminal reports whether a signal came from the terminal, which sends it to the whole foreground group. The command has it then, and
// many programs end at once at a second Ctrl-C.
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

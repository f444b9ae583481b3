package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lcache/spelling"
)

// sampleTime is how often the batches that lie ready are counted.
const sampleTime = time.Second

// commandDone is how COMMAND ended.
type commandDone struct {
	name    string
	code    int            // as the process ends with
	signal  syscall.Signal // that killed it; 0: none
	seconds float64
}

// lookUp finds COMMAND before anything else is done: who mistyped it need not wait for a listing.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	info, statErr := os.Stat(name)
	switch {
	case err != nil && statErr == nil && info.IsDir():
		code := exitNotExecutable
		if errors.Is(err, exec.ErrNotFound) {
			code = exitNotFound
		}
		return "", &endedWith{code, fmt.Errorf("%s is a directory, not a command: to cache it say lcache run --source %s -- COMMAND", name, spelling.ShellWord(name))}
	case err == nil, errors.Is(err, exec.ErrDot): // somebody put the working directory on PATH, and means it
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		advice := "give its path, or put it on PATH"
		if statErr == nil && info.Mode().IsRegular() {
			advice = "name what runs it, like python " + name + ", or say ./" + name
		}
		return "", &endedWith{exitNotFound, fmt.Errorf("no command %s: %s", name, advice)}
	}
	return "", &endedWith{exitNotExecutable, fmt.Errorf("%s can't be executed: chmod +x it, or name what runs it, like python %s", name, name)}
}

// runCommand runs COMMAND once and waits for it, passing signals on.
func (r *runner) runCommand(path string, signals *signals) (done commandDone, err error) {
	cmd := exec.Command(path)
	cmd.Args = r.command
	cmd.Env = r.environment(os.Environ())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.in, r.out, r.logs
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return done, &endedWith{exitNotExecutable, fmt.Errorf("%s can't be executed: %w", r.command[0], err)}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	sample := time.NewTicker(sampleTime)
	defer sample.Stop()
	for {
		select {
		case sig := <-signals.all:
			if !fromTerminal(sig) {
				cmd.Process.Signal(sig) // an error: it has just ended
			}
		case <-sample.C:
			for _, s := range r.serving {
				s.sample()
			}
		case err := <-ended:
			done = commandDone{name: commandName(r.command), seconds: time.Since(began).Seconds()}
			return done, done.end(cmd.ProcessState, err)
		}
	}
}

// end notes how the process ended. What Wait says beside that is about its streams.
func (d *commandDone) end(state *os.ProcessState, err error) error {
	if state == nil {
		return fmt.Errorf("wait for %s: %w", d.name, err)
	}
	d.code = state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		d.signal = status.Signal()
		d.code = exitSignal + int(d.signal)
	}
	return nil
}

// commandName is how people call it: the script, if there is one.
func commandName(command []string) string {
	for _, word := range command[1:] {
		if strings.HasSuffix(word, ".py") {
			return filepath.Base(word)
		}
	}
	return filepath.Base(command[0])
}

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
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
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
		return &endedWith{exitSignal + int(n), errors.New("interrupted: what is stored stays; run the same command again to go on")}
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

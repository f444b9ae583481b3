package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"lcache/internal/errcode"
	"lcache/internal/usage"
)

// sampleTime is the time between two counts of the batches that are ready.
const sampleTime = time.Second

// Exit codes of shells.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // and the signal's number
)

// lookUp finds the command. It comes before the listing, which may take long: a mistyped name is an error at once.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	info, statErr := os.Stat(name)
	switch {
	case err != nil && statErr == nil && info.IsDir():
		code := exitNotExecutable
		if errors.Is(err, exec.ErrNotFound) {
			code = exitNotFound
		}
		return "", &ExitError{code, errcode.Errorf(errcode.NotRunnable, "%s is a directory, not a command: to cache it say lcache run --source %s -- COMMAND", name, usage.ShellWord(name))}
	case err == nil, errors.Is(err, exec.ErrDot): // the user has put the working directory on PATH
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		advice := "give its path, or put it on PATH"
		if statErr == nil && info.Mode().IsRegular() {
			advice = "name what runs it, like python " + name + ", or say ./" + name
		}
		return "", &ExitError{exitNotFound, errcode.Errorf(errcode.NotRunnable, "no command %s: %s", name, advice)}
	}
	return "", &ExitError{exitNotExecutable, errcode.Errorf(errcode.NotRunnable, "%s can't be executed: chmod +x it, or name what runs it, like python %s", name, name)}
}

// command runs the command once and waits for it, passing signals on.
func (r *run) command(path string, signals *signals) (*Result, error) {
	if r.Headspace {
		if err := r.takeNotes(); err != nil {
			return nil, err
		}
		defer os.RemoveAll(filepath.Dir(r.notes))
	}
	cmd := exec.Command(path)
	cmd.Args = r.Command
	cmd.Env = r.environment()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.Stdin, r.Stdout, r.Stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, &ExitError{exitNotExecutable, fmt.Errorf("%s can't be executed: %w", r.Command[0], err)}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	sample := time.NewTicker(sampleTime)
	defer sample.Stop()
	for {
		select {
		case sig := <-signals.all:
			signals.isOut = signals.isOut || sig == syscall.SIGTERM
			if !fromTerminal(sig) {
				cmd.Process.Signal(sig) // an error: the command has just ended
			}
		case <-sample.C:
			for _, s := range r.serving {
				s.sample()
			}
		case err := <-ended:
			result := &Result{Command: commandName(r.Command), Seconds: time.Since(began).Seconds(), Loaders: r.headspace()}
			return result, result.end(cmd.ProcessState, err)
		}
	}
}

// end notes how the process ended. An error of Wait is about the streams of the process, as long as there is a state.
func (r *Result) end(state *os.ProcessState, err error) error {
	if state == nil {
		return fmt.Errorf("wait for %s: %w", r.Command, err)
	}
	r.ExitCode = state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.Signal = status.Signal()
		r.ExitCode = exitSignal + int(r.Signal)
	}
	return nil
}

// commandName returns the name of a command for people: its script, if there is one.
func commandName(command []string) string {
	for _, word := range command[1:] {
		if strings.HasSuffix(word, ".py") {
			return filepath.Base(word)
		}
	}
	return filepath.Base(command[0])
}

// SocketVariable returns the variable for the socket of a named source; of "": the variable for the socket of the first source.
func SocketVariable(source string) string {
	if source == "" {
		return socketVariable
	}
	return socketVariable + "_" + strings.ToUpper(strings.ReplaceAll(source, "-", "_"))
}

const (
	socketVariable   = "LCACHE_SOCKET"
	metricsVariables = "LCACHE_METRICS" // and names that begin so: the token among them
)

// environment returns the command's environment. It has the sockets. It has neither the token of the metrics, nor their address, which is in
// use: a server that the command starts would try to listen there.
func (r *run) environment() []string {
	env := slices.DeleteFunc(slices.Clone(r.Environ), func(v string) bool { return strings.HasPrefix(v, metricsVariables) })
	for _, s := range r.serving {
		if s.Name != "" {
			env = append(env, SocketVariable(s.Name)+"="+s.socket())
		}
	}
	if r.notes != "" {
		env = append(env, headspaceVariable+"="+r.notes)
	}
	return append(env, SocketVariable("")+"="+r.serving[0].socket())
}

// ChildEnvironment returns env without the variables of lcache's flags, except for the variables that choose the I/O. A child of lcache gets
// its settings on its command line.
func ChildEnvironment(env []string) []string {
	var kept []string
	for _, v := range env {
		if !strings.HasPrefix(v, "LCACHE_") || strings.HasPrefix(v, "LCACHE_IO=") || strings.HasPrefix(v, "LCACHE_DIRECT=") {
			kept = append(kept, v)
		}
	}
	return kept
}

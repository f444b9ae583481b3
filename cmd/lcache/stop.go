package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/launch"
	"lcache/internal/usage"
)

func newStopCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "stop [DIR|PID]",
		Short:      "Stop a server cleanly",
		SuggestFor: []string{"kill", "quit", "shutdown"},
		Long: "stop ends the server of the cache in DIR, or the server with this PID. Without an argument it ends the only server of\n" +
			"this user. The server finishes the requests in flight, and keeps all stored data. stop names the processes that still\n" +
			"train from it.\n\n" +
			"A training program that started the server for itself starts it again after 10 s. To replace it, run lcache serve\n" +
			"--take-over within that time. A server inside lcache run ends with its command.",
		Example: "  lcache stop /nvme/train\n  lcache stop",
		Args:    atMostOne,
	}
	cmd.Flags().BoolVar(&g.json, "json", false, "the stopped server as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := launch.StopOptions{Registry: attach.Dir(), Version: cmd.Version}
		if len(args) == 1 {
			var err error
			if o.Dir, o.Pid, err = dirOrPid(args[0]); err != nil {
				return err
			}
		}
		s, err := launch.Stop(cmd.Context(), o)
		if err != nil {
			return err
		}
		if g.json {
			return writeJSON(cmd.OutOrStdout(), s)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), stoppedText(s))
		return err
	}
	return cmd
}

func stoppedText(s *launch.Stopped) string {
	text := "stopped " + joined(usage.Name(s.Name), "pid "+strconv.Itoa(s.Pid), usage.Names(s.Dirs, ","))
	if len(s.Training) == 0 {
		return text
	}
	who, does := "process "+strconv.Itoa(s.Training[0])+" still trains", "it starts"
	if len(s.Training) > 1 {
		var pids []string
		for _, pid := range s.Training {
			pids = append(pids, strconv.Itoa(pid))
		}
		who, does = "processes "+strings.Join(pids, ", ")+" still train", "they start"
	}
	if !s.Embedded {
		return text + fmt.Sprintf("\n! %s, and go on if another server of this cache listens at %s", who, usage.Name(s.Socket))
	}
	return text + fmt.Sprintf("\n! %s: %s the server again in 10 s, unless another one runs by then; to serve it yourself: %s", who, does, s.TakeOver())
}

// dirOrPid reads the argument of stop: digits are a pid, anything else is the directory of a cache; one of several directories suffices.
func dirOrPid(arg string) (dir string, pid int, err error) {
	if pid, err := strconv.Atoi(arg); err == nil {
		if pid <= 0 {
			return "", 0, usagef("%s is not a process: give the pid that lcache status shows, or the cache's directory", arg)
		}
		return "", pid, nil
	}
	first, _, _ := strings.Cut(arg, ",")
	if first == "" {
		return "", 0, usagef("%q is not a directory: give the cache's directory, or a pid", arg)
	}
	if dir, err = filepath.Abs(first); err != nil {
		return "", 0, fmt.Errorf("working directory: %w", err)
	}
	return dir, 0, nil
}

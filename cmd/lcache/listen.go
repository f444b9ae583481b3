package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"strconv"

	"github.com/spf13/pflag"
)

// The flags of a server's socket, of serve and of run.

const (
	ownMode   = 0o600
	groupMode = 0o660
)

func addSocketFlags(flags *pflag.FlagSet, o *serveOptions, usage string) {
	o.server.Mode = ownMode
	flags.StringVar(&o.server.Path, "socket", "", usage)
	flags.Var((*fileMode)(&o.server.Mode), "socket-mode", "permissions of the socket")
	flags.Var(&o.group, "socket-group", "group whose members may connect; sets --socket-mode to 0660")
}

// finishSocket completes the options of the socket. It refuses a group whose members could not connect.
func (o *serveOptions) finishSocket(modeGiven bool) error {
	o.engine.Shared = o.group.name != "" || o.server.Mode&0o077 != 0
	if o.group.name == "" {
		return nil
	}
	if o.server.Path == "" {
		return usagef("--socket-group %s needs --socket, in a folder that the group may enter: the cache is for its owner only", o.group.name)
	}
	if !modeGiven {
		o.server.Mode = groupMode
	}
	if o.server.Mode&0o060 != 0o060 {
		return usagef("--socket-mode %04o keeps out the members of --socket-group %s: leave it out, or give 0660", o.server.Mode, o.group.name)
	}
	o.server.AllowGroup = o.group.id
	return nil
}

// fileMode is a flag of permissions, in octal.
type fileMode fs.FileMode

func (m *fileMode) String() string { return fmt.Sprintf("%04o", uint32(*m)) }
func (m *fileMode) Type() string   { return "MODE" }
func (m *fileMode) Set(text string) error {
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o777 {
		return errors.New("must be permissions in octal, like 0600")
	}
	if n&0o600 != 0o600 {
		return errors.New("would keep out the server's own user: must include 0600")
	}
	*m = fileMode(n)
	return nil
}

// group is a flag of a group of users, by name or number.
type group struct {
	name string // as given
	id   int
}

func (g *group) String() string { return g.name }
func (g *group) Type() string   { return "GROUP" }
func (g *group) Set(text string) error {
	id, err := strconv.Atoi(text)
	if err != nil {
		found, err := user.LookupGroup(text)
		if err != nil {
			return errors.New("this machine has no such group: see getent group")
		}
		if id, err = strconv.Atoi(found.Gid); err != nil {
			return fmt.Errorf("has no number: %w", err)
		}
	}
	if id <= 0 || id > 1<<31-1 {
		return errors.New("must be a group of users, by its name or number, and not root's")
	}
	g.name, g.id = text, id
	return nil
}

// addLayoutFlag adds --layout.
func addLayoutFlag(flags *pflag.FlagSet, to *string) {
	flags.Var(&choice{to, []string{"auto", "log", "static"}}, "layout",
		"layout on disk: log is reordered every epoch, static never (default: auto, by job and disk)")
}

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
	"lcache/internal/usage"
	"lcache/iouring"
	"lcache/shuffle"
)

// Exit codes.
const (
	exitDone    = 0
	exitError   = 1 // one line on stderr says what failed, on what, and what to do
	exitUsage   = 2 // the command line is wrong
	exitCorrupt = 3 // stored or source bytes have changed
)

// endedWith carries an exit code, like that of COMMAND. Without err no message is printed.
type endedWith struct {
	code int
	err  error
}

func (e *endedWith) Error() string {
	if e.err == nil {
		return fmt.Sprintf("ended with %d", e.code)
	}
	return e.err.Error()
}

func (e *endedWith) Unwrap() error { return e.err }

// usageError marks an error of the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// corruptError marks the error that stored bytes differ from the dataset.
type corruptError struct{ err error }

func (e *corruptError) Error() string      { return e.err.Error() }
func (e *corruptError) Code() errcode.Code { return errcode.DamageFound }

// exitCode returns the exit code for an error of a command.
func exitCode(err error) int {
	var (
		typed   *usageError
		flags   *usage.Error
		recipe  *shuffle.UsageError
		corrupt *corruptError
		ended   *endedWith
	)
	switch {
	case errors.As(err, &ended):
		return ended.code
	case errors.As(err, &corrupt):
		return exitCorrupt
	case errors.As(err, &typed), errors.As(err, &flags), errors.As(err, &recipe):
		return exitUsage
	}
	return exitError
}

// systemErrors are the errors of the system that have a code of their own. kind is the word by which programs that started this one tell some of them apart.
var systemErrors = []struct {
	is   error
	code errcode.Code
	kind string
}{
	{fs.ErrNotExist, errcode.NotFound, "not_found"},
	{fs.ErrPermission, errcode.NotPermitted, "permission"},
	{syscall.ENOTDIR, errcode.NotADirectory, "not_a_directory"},
	{syscall.ENOSPC, errcode.NoSpace, "no_space"},
	{syscall.EDQUOT, errcode.NoSpace, "no_space"},
	{syscall.EROFS, errcode.ReadOnly, "read_only"},
	{exec.ErrNotFound, errcode.NotFound, ""},
}

// errorKind names the class of an error for programs that started this one; "": none of those classes.
func errorKind(err error) string {
	if exitCode(err) == exitUsage {
		return "usage"
	}
	for _, s := range systemErrors {
		if errors.Is(err, s.is) {
			return s.kind
		}
	}
	return ""
}

// errorCode returns the code of an error with which a command ends (docs/errors.md).
func errorCode(err error) errcode.Code {
	if exitCode(err) == exitUsage {
		return errcode.Usage
	}
	code, ok := errcode.Of(err)
	if ok && code != errcode.SourceInvalid { // the system's own reason is more exact than that
		return code
	}
	if noRing := new(iouring.UnavailableError); errors.As(err, &noRing) {
		return errcode.NoIOUring
	}
	for _, s := range systemErrors {
		if errors.Is(err, s.is) {
			return s.code
		}
	}
	if ok {
		return code
	}
	return errcode.Failed
}

// writeErrorAsJSON writes a line of JSON before the error's own line, for a program that reads progress as JSON. It has a kind if errorKind knows one.
func writeErrorAsJSON(w io.Writer, err error) {
	fields := map[string]string{"code": string(errorCode(err))}
	if kind := errorKind(err); kind != "" {
		fields["kind"] = kind
	}
	line, _ := jsonbytes.Marshal(map[string]any{"schema": 1, "error": fields})
	fmt.Fprintf(w, "%s\n", line)
}

// unknownCommand is the error for a word that is not a command. It suggests the nearest command.
func unknownCommand(root *cobra.Command, word string) error {
	advice := "lcache --help lists the commands"
	if word == "version" {
		advice = "did you mean --version?"
	}
	if near := nearestCommand(root, word); near != "" {
		advice = fmt.Sprintf("did you mean %s?", near)
	} else if _, err := exec.LookPath(word); err == nil {
		advice = fmt.Sprintf("to run a program with a cache say lcache run --source DIR -- %s …", word)
	}
	return usagef("no command %q: %s", word, advice)
}

// nearestCommand returns the command that a mistyped word was meant to be; "": none is like it.
func nearestCommand(root *cobra.Command, word string) string {
	var names []string
	for _, cmd := range root.Commands() {
		if slices.ContainsFunc(cmd.SuggestFor, func(name string) bool { return strings.EqualFold(name, word) }) {
			return cmd.Name()
		}
		names = append(names, cmd.Name())
	}
	return usage.Nearest(word, names)
}

// flagError turns an error of a flag into one that says how to give the flag. Errors of variables have the same form.
func flagError(cmd *cobra.Command, err error) error {
	if bad := new(pflag.InvalidValueError); errors.As(err, &bad) {
		if _, is := bad.GetFlag().Value.(*oneSource); is { // which may have a password in it
			return usagef("--%s: %w", bad.GetFlag().Name, bad.Unwrap())
		}
		return usagef("--%s %s: %w", bad.GetFlag().Name, bad.GetValue(), plainly(bad.Unwrap()))
	}
	if unknown := new(pflag.NotExistError); errors.As(err, &unknown) {
		return unknownFlag(cmd, unknown)
	}
	return usagef("%w: see %s --help", err, cmd.CommandPath())
}

// unknownFlag is the error of an unknown flag. It names the flag that was meant, or the commands that have this flag.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	typed := "--" + unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); letters != "" {
		typed = "-" + letters // -source is read as letters, and meant as --source
	}
	typed, _, _ = strings.Cut(typed, "=")
	word := strings.TrimLeft(typed, "-")
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := usage.Nearest(word, names); near != "" {
		return usagef("unknown flag %s: did you mean --%s?", typed, near)
	}
	var others []string
	for _, other := range cmd.Root().Commands() {
		if other != cmd && other.Flags().Lookup(word) != nil {
			others = append(others, other.CommandPath())
		}
	}
	if len(others) > 0 {
		return usagef("unknown flag %s: it is one of %s, not of %s: see %s --help", typed, strings.Join(others, " and "), cmd.CommandPath(), cmd.CommandPath())
	}
	return usagef("unknown flag %s: see %s --help", typed, cmd.CommandPath())
}

// plainly replaces an error of strconv by one in plain words.
func plainly(err error) error {
	switch num := new(strconv.NumError); {
	case !errors.As(err, &num):
		return err
	case num.Func == "ParseBool":
		return errors.New("must be true or false")
	default:
		return errors.New("not a whole number")
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	for _, name := range []string{"source", "cache"} { // people may give the value of the first of these without the flag
		if f := cmd.Flags().Lookup(name); f != nil && !f.Changed {
			return usagef("takes no argument, got %q: did you mean --%s %s?", args[0], name, usage.ShellWord(args[0]))
		}
	}
	return usagef("takes no argument, got %q: see %s --help", args[0], cmd.CommandPath())
}

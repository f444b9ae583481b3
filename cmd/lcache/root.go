package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lcache/shuffle"
	"lcache/spelling"
	"lcache/usage"
)

// Exit codes.
const (
	exitDone    = 0
	exitError   = 1 // one line on stderr says what failed, on what, and what to do
	exitUsage   = 2 // the command line is wrong
	exitCorrupt = 3 // stored or source bytes are not what they were
)

// version is set by the Makefile. If it is empty, versionText takes the module's version.
var version = ""

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

// corruptError marks the error that stored bytes differ from those of the dataset.
type corruptError struct{ err error }

func (e *corruptError) Error() string { return e.err.Error() }

// globals are the flags that every command has.
type globals struct {
	progress string
	quiet    bool
	json     bool

	began bool // the command's work has begun: an error before that is an error of the command line
}

// run runs a command line, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal kills the process

	g := &globals{progress: "auto"}
	root := newRootCommand(g)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd == root && !strings.HasPrefix(args[0], "-") { // the flags of an unknown command look like unknown flags of lcache
			return unknownCommand(root, args[0])
		}
		return flagError(cmd, err)
	})
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	if !g.began {
		err = &usageError{err}
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = errors.New("interrupted: what is stored stays; run the same command again to go on")
	}
	if ended := new(endedWith); errors.As(err, &ended) && ended.err == nil {
		return ended.code
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ") // of joined errors; names are quoted
	fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), oneLine(text))
	return exitCode(err)
}

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

// oneLine escapes a message so that it stays on one line and can't control a terminal: it may quote names of files.
func oneLine(s string) string {
	var b strings.Builder
	for _, r := range strings.TrimSpace(s) {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := fmt.Sprintf("%q", r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// Groups of commands in the help.
const (
	groupTrain   = "train"
	groupCaches  = "caches"
	groupMeasure = "measure"
	groupRest    = "rest"
)

func init() { cobra.EnableCommandSorting = false } // commands stand in the order of newRootCommand: run is the first

func newRootCommand(g *globals) *cobra.Command {
	root := &cobra.Command{
		Use:   "lcache COMMAND",
		Short: "Training data at the speed of sequential reads, in exactly the order you shuffled",
		Long: "lcache keeps a dataset on local SSDs in the order in which training will read it, and rewrites that order\n" +
			"for the next epoch while the current one is being read. Python gets the samples without a copy.",
		Example: "  lcache run --source /data/train -- python train.py\n" +
			"  lcache doctor --source /data/train\n" +
			"  lcache run --help",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // so that an unknown command comes to RunE, as a usage error
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if !g.quiet {
				for _, line := range misspeltVariables(cmd.Root(), os.Environ()) {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), line)
				}
			}
			return nil
		},
		DisableFlagsInUseLine: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true // ours is stricter
	root.SetHelpCommand(newHelpCommand())
	root.SetHelpCommandGroupID(groupRest)
	root.PersistentFlags().Var(&choice{&g.progress, []string{"auto", "plain", "json", "none"}}, "progress", "how progress is shown on stderr: auto, plain, json or none")
	root.PersistentFlags().BoolVar(&g.quiet, "quiet", false, "neither progress nor remarks, only errors")
	addGroup(root, groupTrain, "Train:", newRunCommand(g), newIngestCommand(g), newServeCommand(g), newStatusCommand(g))
	addGroup(root, groupCaches, "Look after caches:", newListCommand(g), newVerifyCommand(g), newRemoveCommand(g))
	addGroup(root, groupMeasure, "Measure this machine:", newDoctorCommand(g), newBenchCommand(g))
	addGroup(root, groupRest, "Try it, and the rest:", newDemoCommand(g), newOrderCommand(), newCompletionCommand())
	for _, cmd := range append(root.Commands(), root) {
		complete(cmd, g)
	}
	root.SetVersionTemplate("lcache {{.Version}}\n")
	root.SetUsageTemplate(usageText.Replace(root.UsageTemplate()) + usageFooter)
	return root
}

// complete sets what all commands have in common: version, completion, a check of arguments.
func complete(cmd *cobra.Command, g *globals) {
	cmd.Version = versionText()
	cmd.Flags().SortFlags = false
	completeFlags(cmd)
	if cmd.Args == nil {
		cmd.Args = noArguments
	}
	work := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		g.began = true
		return work(cmd, args)
	}
}

// addGroup adds commands that the help shows together, under a title.
func addGroup(root *cobra.Command, id, title string, cmds ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range cmds {
		cmd.GroupID = id
	}
	root.AddCommand(cmds...)
}

// usageText changes cobra's usage template: one usage line, and COMMAND in place of [command].
var usageText = strings.NewReplacer("{{if .HasAvailableSubCommands}}\n  {{.CommandPath}} [command]{{end}}", "", "{{.CommandPath}} [command] --help", "{{.CommandPath}} COMMAND --help")

const defaultExitCodes = `  0  done
  1  an error: one line on stderr says what failed, on what, and what to do
  2  wrong usage
  3  corruption found
`

const usageFooter = `{{if .Runnable}}
Every flag can also be given as LCACHE_<FLAG>, with _ for -. A flag given on the command line wins.

Exit codes:
{{with index .Annotations "exit codes"}}{{.}}{{else}}` + defaultExitCodes + `{{end}}{{end}}`

// exitCodesNote is the annotation of a command with other exit codes.
const exitCodesNote = "exit codes"

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
	return spelling.Nearest(word, names)
}

// flagError turns an error of a flag into one that says how to give the flag. Errors of variables have the same form.
func flagError(cmd *cobra.Command, err error) error {
	if bad := new(pflag.InvalidValueError); errors.As(err, &bad) {
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
	if near := spelling.Nearest(word, names); near != "" {
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
			return usagef("takes no argument, got %q: did you mean --%s %s?", args[0], name, spelling.ShellWord(args[0]))
		}
	}
	return usagef("takes no argument, got %q: see %s --help", args[0], cmd.CommandPath())
}

// clientName is the name of this program in the log messages of a server.
func clientName() string { return "lcache-status " + versionText() }

func versionText() string {
	v := version
	if info, ok := debug.ReadBuildInfo(); v == "" && ok {
		v = info.Main.Version
	}
	if v == "" || v == "(devel)" {
		v = "0.1-dev"
	}
	return fmt.Sprintf("%s (%s %s/%s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"lcache/cmd/lcache/internal/diagnosis"
	"lcache/internal/errcode"
	"lcache/internal/usage"
)

// globals are the flags that every command has.
type globals struct {
	progress string
	quiet    bool
	logs     string // text or json
	json     bool

	kept *diagnosis.Lines // the last log messages; nil: none are kept

	began bool // the command's work has begun: an error before that is an error of the command line
}

// run runs a command line, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal kills the process

	log.SetOutput(io.Discard) // net/http logs the bytes of a broken server there; this program logs nothing there
	g := &globals{progress: "auto", logs: "text", kept: &diagnosis.Lines{}}
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
		err = errcode.New(errcode.Interrupted, "interrupted: stored samples stay in the cache; run the same command again to continue")
	}
	if ended := new(endedWith); errors.As(err, &ended) && ended.err == nil {
		return ended.code
	}
	if g.progress == "json" {
		writeErrorAsJSON(stderr, err)
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ") // of joined errors; names are quoted
	fmt.Fprintf(stderr, "%s: %s [%s]\n", cmd.CommandPath(), usage.Message(text), errorCode(err))
	return exitCode(err)
}

// Groups of commands in the help.
const (
	groupTrain   = "train"
	groupCaches  = "caches"
	groupMeasure = "measure"
	groupPlan    = "plan"
	groupRest    = "rest"
)

func init() { cobra.EnableCommandSorting = false } // commands stand in the order of newRootCommand: run is the first

func newRootCommand(g *globals) *cobra.Command {
	root := &cobra.Command{
		Use:   "lcache COMMAND",
		Short: "Local SSD cache for training data, in your shuffled order",
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
	root.PersistentFlags().Var(&choice{&g.progress, []string{"auto", "plain", "json", "none"}}, "progress", "how to show progress on stderr")
	root.PersistentFlags().Var(&choice{&g.logs, []string{"text", "json"}}, "log-format", "format of log messages on stderr")
	root.PersistentFlags().BoolVar(&g.quiet, "quiet", false, "print errors only, no progress and no remarks")
	addGroup(root, groupTrain, "Train:", newRunCommand(g), newIngestCommand(g), newServeCommand(g), newStatusCommand(g), newClusterCommand(g))
	addGroup(root, groupCaches, "Look after caches:", newListCommand(g), newVerifyCommand(g), newRemoveCommand(g), newStopCommand(g))
	addGroup(root, groupMeasure, "Measure this machine:", newDoctorCommand(g), newBenchCommand(g))
	addGroup(root, groupPlan, "Plan before you buy:", newPlanCommand(g), newSimulateCommand(g))
	addGroup(root, groupRest, "Try it, and the rest:", newDemoCommand(g), newOrderCommand(), newCompletionCommand(), newManualCommand())
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

// usageText changes cobra's usage template: one usage line, COMMAND in place of [command], and flags in groups.
var usageText = strings.NewReplacer(cobraFlagUsages, "{{ownFlagUsages .}}", "{{if .HasAvailableSubCommands}}\n  {{.CommandPath}} [command]{{end}}", "", "{{.CommandPath}} [command] --help", "{{.CommandPath}} COMMAND --help")

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

// clientName is the name of this program in the log messages of a server.
func clientName() string { return "lcache-status " + versionText() }

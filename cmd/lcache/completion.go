package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lcache/shuffle"
)

var shells = []string{"bash", "fish", "powershell", "zsh"}

func newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|fish|powershell|zsh",
		Short: "Print a completion script for your shell",
		Long:  "completion prints a script that completes commands, flags, recipes and values of flags in your shell.",
		Example: "  source <(lcache completion bash)\n" +
			"  lcache completion zsh > \"${fpath[1]}/_lcache\"\n" +
			"  lcache completion fish > ~/.config/fish/completions/lcache.fish",
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("takes one argument, the shell: %s", strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			case "zsh":
				return root.GenZshCompletion(out)
			}
			return usagef("no completion for %q: there is one for %s", args[0], strings.Join(shells, ", "))
		},
	}
}

// newHelpCommand returns cobra's help command, except that an unknown command is an error.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Say more about a command",
		Long:    "help COMMAND prints what lcache COMMAND --help prints.",
		Example: "  lcache help run",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && c.IsAvailableCommand() {
					words = append(words, c.Name()+"\t"+c.Short)
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(cmd.Root(), strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
}

// completeFlags registers the completion of a command's flags: words, recipes, folders or files. Other values have no completion.
func completeFlags(cmd *cobra.Command) {
	completeFlag := func(f *pflag.Flag) {
		complete := cobra.NoFileCompletions
		switch v := f.Value.(type) {
		case *choice:
			complete = cobra.FixedCompletions(v.words, cobra.ShellCompDirectiveNoFileComp)
		case dirs, sources:
			complete = completeDirs
		}
		switch f.Name {
		case "recipe":
			complete = completeRecipes
		case "source", "against", "client", "dir":
			complete = completeDirs
		case "socket", "facts", "save", "python":
			return // files, which is the default
		}
		if err := cmd.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
			panic(err) // the flag is the command's own
		}
	}
	cmd.LocalFlags().VisitAll(completeFlag)
	if name := cmd.Name(); name == "ls" || name == "rm" {
		cmd.ValidArgsFunction = completeDirs
	}
	if cmd.Args == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
}

func completeDirs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

func completeRecipes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, r := range shuffle.Recipes() {
		names = append(names, r.Name+"\t"+r.About)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"lcache/cmd/lcache/internal/attach"
	"lcache/internal/cluster"
	"lcache/internal/errcode"
	"lcache/internal/serve/status"
)

func newClusterCommand(g *globals) *cobra.Command {
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:        "cluster [DIR|PID]",
		Short:      "Show the machines that share a dataset with your servers",
		SuggestFor: []string{"peers", "members", "nodes"},
		Long: "cluster shows a line for each machine that your servers know: its state, its room for samples, and since when.\n" +
			"DIR is a cache, PID a server; without them it shows all of your servers that are in a cluster.",
		Example: "  lcache cluster key > ~/.lcache.key && chmod 600 ~/.lcache.key\n  lcache cluster\n  lcache cluster /nvme/train --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server := ""
			if len(args) == 1 {
				server = args[0]
			}
			return showCluster(cmd.Context(), server, asJSON, watch, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON, one document for each server")
	cmd.Flags().BoolVar(&watch, "watch", false, "again every two seconds, until interrupted")
	cmd.AddCommand(&cobra.Command{
		Use:   "key",
		Short: "Print a new secret for a cluster",
		Long: "key prints 32 random bytes as text. Keep them in a file that only you can read, and copy it to all machines, or put it\n" +
			"where all of them see it. Whoever has the key can read every dataset of the cluster.",
		Example: "  lcache cluster key > ~/.lcache.key && chmod 600 ~/.lcache.key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), cluster.NewKey())
			return err
		},
	})
	return cmd
}

// showCluster prints what servers know of other machines, once or until ctx ends.
func showCluster(ctx context.Context, server string, asJSON, watch bool, out, warn io.Writer) error {
	for shown := false; ; shown = true {
		documents, silent, err := clusterDocuments(server)
		if err != nil && watch && shown { // the server may come back
			fmt.Fprintln(out, err)
		} else if err != nil {
			return err
		}
		for _, d := range documents {
			if asJSON {
				err = writeJSON(out, clusterDocument{d.Pid, d.Cache.Dirs, nameOf(d), d.Cluster})
			} else {
				_, err = io.WriteString(out, clusterText(d))
			}
			if err != nil {
				return fmt.Errorf("write the cluster: %w", err)
			}
		}
		for _, one := range silent {
			fmt.Fprintln(warn, "lcache cluster: "+silentLine(one))
		}
		if !watch {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchTime):
		}
	}
}

// clusterDocument is a document of --json.
type clusterDocument struct {
	Pid     int            `json:"pid"`
	Dirs    []string       `json:"dirs"`
	Name    string         `json:"name"`
	Cluster status.Cluster `json:"cluster"`
}

// clusterDocuments asks the server of a directory or a process, or all servers of this user that are in a cluster. silent describes servers that do not
// answer.
func clusterDocuments(server string) (documents []status.Document, silent []string, err error) {
	clients, silent, err := attach.DialRegistered(attach.Dir(), clientName(), func(string) bool { return false })
	if err != nil {
		return nil, nil, err
	}
	answers, errs := make([]status.Document, len(clients)), make([]error, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			defer c.Close()
			_, answers[i], errs[i] = c.Status()
		})
	}
	all.Wait()
	found := false
	for i, d := range answers {
		switch {
		case attach.IsSilent(errs[i]):
			silent = append(silent, clients[i].String())
			continue
		case errs[i] != nil:
			err = errors.Join(err, errs[i])
			continue
		case server != "" && !isServer(d, server):
			continue
		}
		found = true
		if d.Cluster.State != status.ClusterOff {
			documents = append(documents, d)
		}
	}
	switch {
	case len(documents) > 0:
		return documents, silent, nil
	case err != nil:
		return nil, nil, err
	case len(silent) > 0 && !found:
		return nil, nil, silence(silent)
	case found && server != "":
		return nil, nil, errcode.New(errcode.NoServer, "that server is in no cluster: start it with --cluster")
	case server != "":
		return nil, nil, errcode.New(errcode.NoServer, fmt.Sprintf("no server of this user has the cache or the process %s: lcache ls lists running servers", server))
	case found:
		return nil, nil, errcode.New(errcode.NoServer, "none of your servers is in a cluster: start one with lcache serve --cluster WHERE")
	}
	return nil, nil, errcode.New(errcode.NoServer, "no server of this user runs: start one with lcache serve --cache DIR --cluster WHERE")
}

// isServer reports whether a document comes from the server of a cache directory or of a process.
func isServer(d status.Document, server string) bool {
	if pid, err := strconv.Atoi(server); err == nil {
		return d.Pid == pid
	}
	dir, err := filepath.Abs(server)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(d.Cache.Dirs, func(other string) bool {
		a, err1 := os.Stat(dir)
		b, err2 := os.Stat(other)
		return err1 == nil && err2 == nil && os.SameFile(a, b)
	})
}

package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"lcache/cmd/lcache/internal/launch"
	"lcache/internal/cluster"
	"lcache/internal/peer"
)

// clusterFlags are the flags of serve and run by which several machines find each other.
type clusterFlags struct {
	where     string
	dataset   string
	key       string
	listen    string
	advertise string
	expect    int
	grace     time.Duration
	late      time.Duration
	memory    int64
	files     cluster.CertificateFiles
	insecure  bool
}

func addClusterFlags(f *pflag.FlagSet, o *clusterFlags) {
	f.StringVar(&o.where, "cluster", "", "find other machines by `WHERE`: auto, listen, dns:NAME or HOST[:PORT],…")
	f.StringVar(&o.key, "cluster-key", "", "`FILE` with the cluster's secret; lcache cluster key makes one")
	f.StringVar(&o.dataset, "dataset", "", "`NAME` of the dataset for machines that have it elsewhere")
	f.IntVar(&o.expect, "expect", 0, "machines to wait for at first (default: unknown)")
	f.StringVar(&o.listen, "listen", "", "`ADDR` for other machines: HOST or NETWORK, and :PORT")
	f.StringVar(&o.advertise, "advertise", "", "`HOST` by which other machines reach this one, if not --listen's")
	f.DurationVar(&o.grace, "peer-grace", cluster.DefaultGrace, "how long a lost machine keeps its samples")
	f.DurationVar(&o.late, "peer-timeout", peer.DefaultLate, "silence of a machine after which its samples come from elsewhere")
	f.Var(size{&o.memory}, "peer-memory", "part of --memory for samples between machines (default: 64 MiB)")
	f.StringVar(&o.files.Cert, "tls-cert", "", "`FILE` with a certificate for this machine, in addition to the key")
	f.StringVar(&o.files.Key, "tls-key", "", "`FILE` with the private key of --tls-cert")
	f.StringVar(&o.files.CA, "tls-ca", "", "`FILE` with the authority that signs the certificates of all machines")
	f.BoolVar(&o.insecure, "peer-insecure", false, "send samples between machines without encryption")
}

// options returns the options of a member; nil: the server is in no cluster.
func (o *clusterFlags) options(f *pflag.FlagSet, version string, logger *slog.Logger) (*launch.ClusterOptions, error) {
	if o.where == "" {
		return nil, unusedFlags(f)
	}
	switch {
	case f.Changed("expect") && (o.expect < 1 || o.expect > maxMachines):
		return nil, usagef("--expect %d: give the number of machines, from 1 to %d, or leave it out", o.expect, maxMachines)
	case o.grace <= 0:
		return nil, usagef("--peer-grace %v: give a time like 60s", o.grace)
	case o.late < leastLate || o.late > mostLate:
		return nil, usagef("--peer-timeout %v: give a time from %v to %v", o.late, leastLate, mostLate)
	}
	if least := int64(max(o.expect, 1)) * launch.LeastPeerMemory; o.memory != 0 && o.memory < least {
		return nil, usagef("--peer-memory %s: give %s or more, which is 1 MiB for each machine", humanize.IBytes(uint64(o.memory)), humanize.IBytes(uint64(least)))
	}
	if err := launch.CheckName(o.dataset); err != nil {
		return nil, err
	}
	c := &launch.ClusterOptions{Dataset: o.dataset, Late: o.late, Memory: o.memory, Options: cluster.Options{Listen: o.listen, Advertise: o.advertise, Expect: o.expect, Grace: o.grace, Program: version, Logger: logger, Certificates: o.files, Insecure: o.insecure}}
	var err error
	if o.where == cluster.Auto {
		env := cluster.FromEnvironment(os.Getenv)
		if env.From == "" {
			logger.Warn("--cluster auto: no other machine is named, so this one goes on alone", "looked_at", cluster.Looked)
			return nil, nil
		}
		if c.Where = env.Where; c.Expect == 0 {
			c.Expect = env.Expect
		}
	} else if c.Where, err = cluster.ParseWhere(o.where); err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	if o.key != "" {
		if c.Key, err = cluster.ReadKey(o.key); err != nil {
			return nil, err
		}
	}
	if c.Host, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("name of this machine: %w", err)
	}
	return c, nil
}

// Bounds of --peer-timeout. A machine that is busy answers every half second.
const (
	leastLate = 600 * time.Millisecond
	mostLate  = time.Minute
)

// unusedFlags returns an error if the command line has flags that need --cluster. Variables are no error, because they may be set for all commands of a
// machine. With an empty --cluster the others have no effect, so a script can switch a cluster off.
func unusedFlags(f *pflag.FlagSet) error {
	var given []string
	f.Visit(func(f *pflag.Flag) { // flags that variables set are not visited
		if f.Name == "cluster" || slices.Contains(clusterFlagNames, f.Name) {
			given = append(given, f.Name)
		}
	})
	if len(given) == 0 || slices.Contains(given, "cluster") {
		return nil
	}
	return usagef("--%s needs --cluster, which says how this machine finds the others: give --cluster auto, listen, dns:NAME or HOST, or leave --%s out", given[0], given[0])
}

// clusterFlagNames are the flags that have no effect without --cluster.
var clusterFlagNames = []string{"cluster-key", "dataset", "expect", "listen", "advertise", "peer-grace", "peer-timeout", "peer-memory", "tls-cert", "tls-key", "tls-ca", "peer-insecure"}

// environ returns the given flags as variables, so that servers which COMMAND starts for other datasets join the same cluster.
func (o *clusterFlags) environ(f *pflag.FlagSet) (variables []string) {
	for name, value := range map[string]string{"cluster": o.where, "cluster-key": fromHere(o.key), "listen": withoutPort(o.listen), "advertise": o.advertise, "expect": strconv.Itoa(o.expect), "peer-grace": o.grace.String(), "peer-timeout": o.late.String(), "peer-memory": fmt.Sprint(o.memory),
		"tls-cert": fromHere(o.files.Cert), "tls-key": fromHere(o.files.Key), "tls-ca": fromHere(o.files.CA), "peer-insecure": strconv.FormatBool(o.insecure)} {
		if f.Changed(name) {
			variables = append(variables, envName(name)+"="+value)
		}
	}
	if o.dataset != "" { // COMMAND's other datasets have other names
		variables = append(variables, envName("dataset")+"=")
	}
	return variables
}

// withoutPort returns an address without its port, which one process has.
func withoutPort(address string) string {
	if i := strings.LastIndexByte(address, ':'); i >= 0 && (strings.HasPrefix(address, "[") && strings.Contains(address[:i], "]") || strings.Count(address, ":") == 1) {
		return address[:i]
	}
	return address
}

// fromHere returns a path that is good in every folder.
func fromHere(path string) string {
	if all, err := filepath.Abs(path); err == nil && path != "" {
		return all
	}
	return path
}

// maxMachines bounds --expect.
const maxMachines = 1024

package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestWithoutPort(t *testing.T) {
	for address, want := range map[string]string{"": "", "10.0.0.1": "10.0.0.1", "10.0.0.1:7746": "10.0.0.1", ":7746": "", "10.0.0.0/8:7746": "10.0.0.0/8", "[fe80::1]:7746": "[fe80::1]", "[fe80::1]": "[fe80::1]"} {
		if got := withoutPort(address); got != want {
			t.Errorf("%q becomes %q, want %q", address, got, want)
		}
	}
}

// TestFlagsWithoutCluster: a flag that needs --cluster is an error on the command line, and none as a variable.
func TestFlagsWithoutCluster(t *testing.T) {
	for _, c := range []struct {
		line, variable string
		want           string // of the error; "": none
	}{
		{"", "", ""},
		{"--expect=3 --listen=10.0.0.1", "", "--expect needs --cluster"},
		{"--peer-insecure", "", "--peer-insecure needs --cluster"},
		{"--tls-ca=ca.pem", "LCACHE_CLUSTER_KEY=/k", "--tls-ca needs --cluster"},
		{"--dataset=train", "", "--dataset needs --cluster"},
		{"--cluster=listen --dataset=a\x01b", "", "printable"},
		{"", "LCACHE_CLUSTER_KEY=/k", ""},
		{"--cluster= --expect=3", "", ""},
	} {
		var o clusterFlags
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.SortFlags = true
		addClusterFlags(f, &o)
		if err := f.Parse(strings.Fields(c.line)); err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(c.variable, "=")
		if err := fromEnvironment(f, func(n string) (string, bool) { return value, n == name }); err != nil {
			t.Fatal(err)
		}
		got, err := o.options(f, "test", slog.New(slog.DiscardHandler))
		if got != nil || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q with %q: %v, want %q", c.line, c.variable, err, c.want)
		}
	}
	// The list has every flag of a cluster.
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	addClusterFlags(f, new(clusterFlags))
	n := 0
	f.VisitAll(func(*pflag.Flag) { n++ })
	if n != len(clusterFlagNames)+1 {
		t.Errorf("%d flags of a cluster, and %d need --cluster", n, len(clusterFlagNames))
	}
}
